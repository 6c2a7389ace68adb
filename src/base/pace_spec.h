/* Stated durations of a paced run (--pace FILE): what a layer and a message are made to take. Plain numbers. */
#ifndef WEFT_BASE_PACE_SPEC_H
#define WEFT_BASE_PACE_SPEC_H

/** Milliseconds a layer takes; 0: it is not held back. */
typedef struct weft_pace_layer {
    double forward_ms, input_gradient_ms, weight_gradient_ms;
} weft_pace_layer;

/** From formats/pace_file.h. */
typedef struct weft_pace {
    weft_pace_layer block, embedding, head;
    double latency_s;   /* of a message */
    double bytes_per_s; /* of a rank's link; 0: messages are not held back */
} weft_pace;

#endif
