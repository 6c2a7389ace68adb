/* Golden generations (generate_golden.h). */
#include "generate_golden.h"

#include <stdio.h>
#include <string.h>

#include "weft/options.h"

weft_generate_options generate_golden_options(golden *g, const char *backend, size_t n)
{
    static char folder[512];
    static char text[256];
    static const char *prompts[GENERATE_PROMPTS_MOST];
    const weft_st_tensor *prompt = golden_tensor(g, "gen.prompt");
    weft_generate_options o;

    text[0] = '\0';
    for (int64_t i = 0; i < prompt->n_elems; i++)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%d", i == 0 ? "" : ",",
                       (int)tensor_at(prompt, i));
    for (size_t i = 0; i < GENERATE_PROMPTS_MOST; i++)
        prompts[i] = text;
    weft_options_init(WEFT_COMMAND_GENERATE, &o);
    o.layout = golden_layout(backend, "");
    o.model = golden_folder(g, GOLDEN_NEW, folder);
    o.ids = prompts;
    o.n_ids = n;
    o.max_new_tokens = golden_tensor(g, "gen.ids")->n_elems;
    o.ignore_eos = true;
    return o;
}

void generate_golden_same(const generate_answer *a, const golden *g, size_t n, const char *what)
{
    const weft_st_tensor *want = golden_tensor(g, "gen.ids");
    assert_int_equal(a->n_prompts, n);
    for (int64_t p = 0; p < a->n_prompts; p++) {
        assert_int_equal(a->n_ids[p], want->n_elems);
        for (int64_t i = 0; i < want->n_elems; i++) {
            if (a->ids[p][i] != (int32_t)tensor_at(want, i))
                fail_msg("%s, %s: new id %lld of prompt %lld is %d, should be %d", g->name, what,
                         (long long)i, (long long)p, a->ids[p][i], (int)tensor_at(want, i));
        }
    }
}
