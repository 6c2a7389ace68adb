/* From a config.json's keys to weft_config: the parts of hf_config.c. */
#ifndef WEFT_FORMATS_HF_CONFIG_FAMILY_H
#define WEFT_FORMATS_HF_CONFIG_FAMILY_H

#include "formats/config_reader.h"
#include "weft/config.h"

/** Limits that keep every later product (parameters, bytes of a training state) inside 63 bits. */
#define WEFT_CONFIG_WIDTH_MAX ((int64_t)1 << 20)
#define WEFT_CONFIG_VOCAB_MAX ((int64_t)1 << 24)
#define WEFT_CONFIG_LAYERS_MAX ((int64_t)1 << 14)
#define WEFT_CONFIG_POSITIONS_MAX ((int64_t)INT32_MAX)

/** The class that transformers gives the family: "GPT2LMHeadModel", ... */
const char *weft_i_family_architecture(weft_family family);

weft_status weft_i_config_gpt2(const weft_reader *r, weft_config *c);
weft_status weft_i_config_llama(const weft_reader *r, weft_config *c);

/** rope_parameters, or rope_scaling with rope_theta; needs head_dim and max_positions set. */
weft_status weft_i_config_rope(const weft_reader *r, weft_config *c);

/** Keys of either family that change the maths and that weft lacks. */
weft_status weft_i_config_refuse(const weft_reader *r, const weft_config *c);

#endif
