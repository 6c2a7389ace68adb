/* Another model than the checkpoint's is refused by the name of what differs, both values, and what to do. */
#include "check.h"

#include "train/resume.h"

static weft_config a_llama(void)
{
    return (weft_config){.family = WEFT_FAMILY_LLAMA,
                         .activation = WEFT_ACTIVATION_SILU,
                         .vocab_size = 51,
                         .hidden_size = 8,
                         .n_layers = 2,
                         .norm_eps = 1e-5,
                         .rope = {.kind = WEFT_ROPE_LINEAR, .theta = 10000.0, .factor = 2.0}};
}

#define REFUSES(change, text)                                                                      \
    do {                                                                                           \
        const weft_config saved_ = a_llama();                                                      \
        weft_config given_ = a_llama();                                                            \
        given_.change;                                                                             \
        CHECK_FAILS(weft_i_resume_compare_config(&saved_, &given_, "OUT/checkpoint-3"),            \
                    WEFT_STATUS_MISMATCH, text);                                                   \
    } while (0)

static void test_train_resume__names_what_differs_between_models(void **state)
{
    const weft_config saved = a_llama(), given = a_llama();
    (void)state;
    CHECK_OK(weft_i_resume_compare_config(&saved, &given, "OUT/checkpoint-3"));
    REFUSES(family = WEFT_FAMILY_GPT2, "its family is llama, that of --model is gpt2");
    REFUSES(activation = WEFT_ACTIVATION_GELU_ERF,
            "its activation is silu, that of --model is gelu");
    REFUSES(rope.kind = WEFT_ROPE_YARN, "its rope type is linear, that of --model is yarn");
    REFUSES(vocab_size = 50, "its vocab_size is 51, that of --model is 50");
    REFUSES(norm_eps = 0.5, "its norm epsilon is 1.0000000000000001e-05, that of --model is 0.5");
    REFUSES(is_tied = true, "its tie_word_embeddings is off, that of --model is on");
    REFUSES(rope.factor = 4.0, "OUT/checkpoint-3 holds another model than --model");
    REFUSES(rope.factor = 4.0, "another --out without --resume");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_train_resume__names_what_differs_between_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
