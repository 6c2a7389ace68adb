/* Reading and comparing the reference values (golden.h). */
#include "golden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "weft/options.h"

void golden_open(golden *g, scratch *s, const char *name, const char *values)
{
    char path[768];
    json_error_t error;

    memset(g, 0, sizeof(*g));
    g->s = s;
    g->name = name;
    (void)snprintf(g->dir, sizeof(g->dir), "%s/tests/golden/%s", WEFT_SOURCE_DIR, name);
    (void)snprintf(path, sizeof(path), "%s/%s", g->dir, values);
    expect_ok(weft_i_st_open(&g->values, s->alloc, path));
    (void)snprintf(path, sizeof(path), "%s/golden.json", g->dir);
    g->about = json_load_file(path, 0, &error);
    if (g->about == NULL)
        fail_msg("%s: %s", path, error.text);
}

void golden_close(golden *g)
{
    weft_i_st_close(g->values);
    json_decref(g->about);
}

const weft_st_tensor *tensor_in(const weft_st *file, const char *name)
{
    const weft_st_tensor *t = weft_i_st_find(file, name);
    if (t == NULL)
        fail_msg("%s has no tensor %s", weft_i_st_file(file, 0), name);
    return t;
}

const weft_st_tensor *golden_tensor(const golden *g, const char *name)
{
    return tensor_in(g->values, name);
}

double tensor_at(const weft_st_tensor *t, int64_t i)
{
    const char *at = (const char *)t->data + (size_t)i * weft_dtype_bytes(t->dtype);
    double f64;
    float f32;
    int64_t i64;
    uint16_t bf16;
    uint32_t bits;

    switch ((int)t->dtype) {
    case WEFT_DTYPE_F64:
        memcpy(&f64, at, sizeof(f64));
        return f64;
    case WEFT_DTYPE_F32:
        memcpy(&f32, at, sizeof(f32));
        return (double)f32;
    case WEFT_DTYPE_I64:
        memcpy(&i64, at, sizeof(i64));
        return (double)i64;
    case WEFT_DTYPE_BF16: /* the upper half of an F32 */
        memcpy(&bf16, at, sizeof(bf16));
        bits = (uint32_t)bf16 << 16;
        memcpy(&f32, &bits, sizeof(f32));
        return (double)f32;
    default:
        fail_msg("%s has a type this test does not read", t->name);
        return 0.0;
    }
}

double golden_torch_error(const golden *g, const char *key)
{
    const json_t *v = json_object_get(json_object_get(g->about, "f32_against_f64"), key);
    if (!json_is_number(v))
        fail_msg("golden.json of %s has no %s", g->name, key);
    return json_number_value(v);
}

bool golden_is_null(const golden *g, const char *tensor, int64_t i)
{
    const json_t *list = json_object_get(g->about, "zero_gradient_in_exact_arithmetic");
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *z = json_array_get(list, k);
        if (strcmp(json_string_value(json_object_get(z, "tensor")), tensor) == 0 &&
            i >= json_integer_value(json_object_get(z, "first")) &&
            i <= json_integer_value(json_object_get(z, "last")))
            return true;
    }
    return false;
}

static void copy(const char *from, const char *to)
{
    expect_ok(weft_i_file_copy(from, to));
}

const char *golden_folder(golden *g, golden_spelling spelling, char out[512])
{
    char from[768];
    char to[768];

    if (spelling != GOLDEN_HUB) {
        const char *leaf = spelling == GOLDEN_NEW ? "model" : "model-sharded";
        (void)snprintf(out, 512, "%.480s/%s", g->dir, leaf);
        return weft_i_dir_exists(out) ? out : NULL;
    }
    (void)snprintf(out, 512, "%.480s/%s-hub", g->s->dir, g->name);
    expect_ok(weft_i_dir_make(out));
    (void)snprintf(from, sizeof(from), "%s/config.hub-style.json", g->dir);
    (void)snprintf(to, sizeof(to), "%s/config.json", out);
    copy(from, to);
    (void)snprintf(from, sizeof(from), "%s/model/model.safetensors", g->dir);
    (void)snprintf(to, sizeof(to), "%s/model.safetensors", out);
    copy(from, to);
    return out;
}

const char *golden_batch(golden *g, const char *ids, const char *labels, char out[512])
{
    const weft_st_tensor *t[2] = {golden_tensor(g, ids), NULL};
    const size_t n = labels != NULL ? 2 : 1;
    weft_st_plan plan[2];
    weft_st_writer *w = NULL;

    if (labels != NULL)
        t[1] = golden_tensor(g, labels);
    for (size_t i = 0; i < n; i++)
        plan[i] = (weft_st_plan){
            .name = i == 0 ? "input_ids" : "labels", .dtype = t[i]->dtype, .shape = t[i]->shape};
    (void)snprintf(out, 512, "%s", scratch_path(g->s, "batch.safetensors"));
    expect_ok(weft_i_st_create(&w, g->s->alloc, out, plan, n, NULL, 0));
    for (size_t i = 0; i < n; i++)
        expect_ok(weft_i_st_append(w, t[i]->data, t[i]->n_bytes));
    expect_ok(weft_i_st_finish(w));
    return out;
}

weft_st *golden_probe(golden *g, const weft_probe_options *options, weft_probe_result *result)
{
    weft_probe_options o = *options;
    weft_st *file = NULL;

    o.out = scratch_path(g->s, "probe.safetensors");
    expect_ok(weft_probe_run(result, &o, NULL));
    expect_ok(weft_i_st_open(&file, g->s->alloc, o.out));
    return file;
}

weft_layout_options golden_layout(const char *backend, const char *dtype)
{
    weft_probe_options o;
    weft_options_init(WEFT_COMMAND_PROBE, &o);
    o.layout.backend = backend;
    o.layout.dtype = dtype;
    o.layout.threads_per_rank = 2;
    return o.layout;
}

void expect_near(const char *what, const weft_st_tensor *a, const weft_st_tensor *b, double bound)
{
    if (!weft_i_shape_equal(&a->shape, &b->shape))
        fail_msg("%s: %s and %s have different shapes", what, a->name, b->name);
    for (int64_t i = 0; i < a->n_elems; i++) {
        const double d = fabs(tensor_at(a, i) - tensor_at(b, i));
        if (!(d <= bound))
            fail_msg("%s: %s[%lld] is %.9g, %s there is %.9g: they differ by %.3g, at most %.3g",
                     what, a->name, (long long)i, tensor_at(a, i), b->name, tensor_at(b, i), d,
                     bound);
    }
}
