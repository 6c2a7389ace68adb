/**
 * weft: plans, trains, fine-tunes and runs Transformer language models. This header brings in the whole public API.
 */
#ifndef WEFT_H
#define WEFT_H

#include "weft/checkpoints.h"
#include "weft/config.h"
#include "weft/context.h"
#include "weft/data.h"
#include "weft/dtype.h"
#include "weft/eval.h"
#include "weft/ext/comm.h"
#include "weft/ext/layer.h"
#include "weft/generate.h"
#include "weft/inspect.h"
#include "weft/model.h"
#include "weft/options.h"
#include "weft/placement.h"
#include "weft/probe.h"
#include "weft/simulate.h"
#include "weft/status.h"
#include "weft/train.h"

#endif
