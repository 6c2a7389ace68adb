/* The MLP between two products: act(up x) (GPT-2) or act(gate x) * (up x) (Llama). The products' regions are block.c's. */
#ifndef WEFT_NN_MLP_H
#define WEFT_NN_MLP_H

#include "nn/linear.h"

typedef struct weft_mlp {
    weft_linear up;   /* one part: up; or two: gate, up */
    weft_linear down; /* row-parallel */
    weft_activation activation;
    int64_t width; /* here */
} weft_mlp;

/** product [rows, width] = act(...) of the up product [rows, width or 2 width]. */
weft_status weft_i_mlp_activate(weft_exec *e, const weft_mlp *m, weft_view up, weft_view product);

/** d_up from d_product. */
weft_status weft_i_mlp_activate_backward(
    weft_exec *e, const weft_mlp *m, weft_view up, weft_view d_product, weft_view d_up);

#endif
