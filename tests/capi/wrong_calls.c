/* wrong_calls: calls every function of the C interface with wrong arguments, and from several threads. Prints "ok". */
#include <millrace.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The layout of version 1 on 64-bit systems is frozen: members are appended, never moved. */
#define AT(type, member, offset) _Static_assert(offsetof(type, member) == offset || sizeof(void *) != 8, #member)
AT(millrace_option, value, 8);
AT(millrace_model_info, parameters, 24);
AT(millrace_model_info, warnings, 56);
AT(millrace_request, tokens, 24);
AT(millrace_request, options, 48);
AT(millrace_request, user_data, 64);
AT(millrace_event, answer, 24);
AT(millrace_event, text, 32);
AT(millrace_event, logprob, 48);
AT(millrace_event, status, 60);
AT(millrace_event, message, 64);
AT(millrace_event, top_count, 80);
AT(millrace_event, prompt_tokens, 88);
AT(millrace_event, decode_seconds, 128);

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);      \
      exit(1);                                                             \
    }                                                                      \
  } while (0)

/* The status must be `wanted`; the message must contain `part`. */
static void refused(millrace_status status, millrace_status wanted, char **error, const char *part) {
  if (status != wanted || !*error || !strstr(*error, part)) {
    fprintf(stderr, "status %s, wanted %s; message '%s' should have '%s'\n", millrace_status_name(status),
            millrace_status_name(wanted), *error ? *error : "(none)", part);
    exit(1);
  }
  millrace_free(*error);
  *error = NULL;
}

static void null_handles(void) {
  char *error = NULL, *text = NULL;
  int32_t token = 0;
  size_t count = 0;
  float *values = NULL;
  const char *texts[] = {"a"};
  millrace_model *model = NULL;
  millrace_engine *engine = NULL;
  millrace_stream *stream = NULL;
  millrace_model_info info = {.struct_size = sizeof info};
  millrace_request request = {.struct_size = sizeof request, .text = "a", .text_bytes = 1};
  millrace_event event = {.struct_size = sizeof event};
  const millrace_status bad = MILLRACE_INVALID_ARGUMENT;
  refused(millrace_model_load("stories", NULL, 0, NULL, &error), bad, &error, "model");
  refused(millrace_model_load("stories", NULL, 1, &model, &error), bad, &error, "options");
  refused(millrace_model_describe(NULL, &info, &error), bad, &error, "model");
  refused(millrace_tokenize(NULL, "a", 1, 0, &token, 1, &count, &error), bad, &error, "model");
  refused(millrace_detokenize(NULL, &token, 1, 0, &text, NULL, &error), bad, &error, "model");
  refused(millrace_render_chat(NULL, "[]", 1, &text, &error), bad, &error, "model");
  refused(millrace_embed(NULL, texts, 1, NULL, 0, &values, &count, &error), bad, &error, "model");
  refused(millrace_engine_create(NULL, NULL, 0, &engine, &error), bad, &error, "model");
  refused(millrace_engine_techniques(NULL, &text, &error), bad, &error, "engine");
  refused(millrace_submit(NULL, &request, &stream, &error), bad, &error, "engine");
  refused(millrace_cancel(NULL, &error), bad, &error, "stream");
  refused(millrace_poll(NULL, NULL, 0, &event, &error), bad, &error, "both are NULL");
  CHECK(millrace_model_load("stories", NULL, 1, &model, NULL) == bad); /* no message wanted */
  CHECK(!model && !engine && !stream && !text && !values);
  millrace_model_free(NULL);
  millrace_engine_free(NULL);
  millrace_stream_free(NULL);
  millrace_free(NULL);
}

static void wrong_values(millrace_model *model, millrace_engine *engine) {
  char *error = NULL, *text = NULL;
  const millrace_status bad = MILLRACE_INVALID_ARGUMENT;
  millrace_stream *stream = NULL;
  millrace_model *other = NULL;
  millrace_model_info info = {.struct_size = 8};
  refused(millrace_model_describe(model, &info, &error), bad, &error, "struct_size");
  refused(millrace_model_load("/no/such/file.gguf", NULL, 0, &other, &error), MILLRACE_CORRUPT, &error, "/no/such");
  const millrace_option unknown[] = {{"no_such_option", "1"}};
  refused(millrace_model_load("stories", unknown, 1, &other, &error), bad, &error, "there are threads");

  millrace_request request = {.struct_size = 0, .text = "a", .text_bytes = 1};
  refused(millrace_submit(engine, &request, &stream, &error), bad, &error, "struct_size");
  request.struct_size = sizeof request;
  request.options = unknown;
  request.option_count = 1;
  refused(millrace_submit(engine, &request, &stream, &error), bad, &error, "max_tokens");
  request.option_count = 0;
  request.messages = "[]";
  refused(millrace_submit(engine, &request, &stream, &error), bad, &error, "exactly one");
  request.text = NULL;
  request.messages = "{";
  refused(millrace_submit(engine, &request, &stream, &error), bad, &error, "JSON");
  const char *const not_messages[] = {"{", "{}", "[1,2]", "7", "{\"messages\": {}}", "{\"messages\": [1]}"};
  for (size_t i = 0; i < sizeof not_messages / sizeof *not_messages; ++i)
    refused(millrace_render_chat(model, not_messages[i], 1, &text, &error), bad, &error, "messages: must be a JSON array");
  const int32_t far[] = {1 << 30};
  request.messages = NULL;
  request.tokens = far;
  request.token_count = 1;
  refused(millrace_submit(engine, &request, &stream, &error), bad, &error, "token");
  refused(millrace_detokenize(model, far, 1, 0, &text, NULL, &error), bad, &error, "vocabulary");
  CHECK(!other && !stream && !text);

  int32_t tokens[2];
  size_t count = 0;
  CHECK(millrace_tokenize(model, "a longer text", 13, 0, tokens, 1, &count, &error) == MILLRACE_BUFFER_TOO_SMALL);
  CHECK(count > 1 && !error);
  CHECK(millrace_tokenize(model, "a longer text", 13, 0, NULL, 0, &count, &error) == MILLRACE_BUFFER_TOO_SMALL);
  CHECK(millrace_tokenize(model, NULL, 0, 0, NULL, 0, &count, &error) == MILLRACE_OK && count == 0);
  millrace_event event = {.struct_size = 1};
  refused(millrace_poll(engine, NULL, 0, &event, &error), bad, &error, "struct_size");
  event.struct_size = sizeof event;
  refused(millrace_poll(engine, NULL, -2, &event, &error), bad, &error, "timeout_ms");
  CHECK(millrace_poll(engine, NULL, -1, &event, &error) == MILLRACE_END); /* there is no stream */
}

/* Members that a later version appends are not written. */
static void larger_event(millrace_engine *engine) {
  struct {
    millrace_event event;
    char later[16];
  } larger;
  memset(&larger, 0x5a, sizeof larger);
  larger.event.struct_size = sizeof larger;
  millrace_request request = {.struct_size = sizeof request, .text = "One day", .text_bytes = 7};
  millrace_stream *stream = NULL;
  CHECK(millrace_submit(engine, &request, &stream, NULL) == MILLRACE_OK);
  CHECK(millrace_poll(NULL, stream, -1, &larger.event, NULL) == MILLRACE_OK);
  CHECK(larger.event.struct_size == sizeof larger && larger.later[0] == 0x5a && larger.event.stream == stream);
  millrace_stream_free(stream);
}

enum { REQUESTS = 12, THREADS = 4, MAX_TOKENS = 64 };

struct answer {
  millrace_engine *engine;
  int32_t tokens[MAX_TOKENS + 8];
  int count;
};

static void *read_answer(void *given) {
  struct answer *answer = given;
  const millrace_option options[] = {{"seed", "5"}, {"max_tokens", "24"}};
  millrace_request request = {.struct_size = sizeof request, .text = "One day", .text_bytes = 7, .options = options,
                              .option_count = 2};
  for (int i = 0; i < REQUESTS / THREADS; ++i) {
    millrace_stream *stream = NULL;
    millrace_event event = {.struct_size = sizeof event};
    answer->count = 0;
    CHECK(millrace_submit(answer->engine, &request, &stream, NULL) == MILLRACE_OK);
    while (millrace_poll(NULL, stream, -1, &event, NULL) == MILLRACE_OK)
      if (event.token >= 0) answer->tokens[answer->count++] = event.token;
    millrace_stream_free(stream);
  }
  return NULL;
}

static void threads(millrace_engine *engine) {
  static struct answer answers[THREADS];
  pthread_t started[THREADS];
  for (int i = 0; i < THREADS; ++i) {
    answers[i].engine = engine;
    CHECK(pthread_create(&started[i], NULL, read_answer, &answers[i]) == 0);
  }
  for (int i = 0; i < THREADS; ++i) CHECK(pthread_join(started[i], NULL) == 0);
  for (int i = 0; i < THREADS; ++i)
    CHECK(answers[i].count == 24 && memcmp(answers[i].tokens, answers[0].tokens, 24 * sizeof(int32_t)) == 0);
}

/* Polls after the engine has been freed return what has arrived, and the end. */
static void freed_engine(millrace_model *model) {
  millrace_engine *engine = NULL;
  millrace_stream *stream = NULL;
  millrace_event event = {.struct_size = sizeof event};
  const millrace_option options[] = {{"max_tokens", "-1"}, {"ignore_eos", "true"}};
  millrace_request request = {.struct_size = sizeof request, .text = "One day", .text_bytes = 7, .options = options,
                              .option_count = 2};
  CHECK(millrace_engine_create(model, NULL, 0, &engine, NULL) == MILLRACE_OK);
  CHECK(millrace_submit(engine, &request, &stream, NULL) == MILLRACE_OK);
  millrace_engine_free(engine);
  millrace_status status;
  int last = 0;
  while ((status = millrace_poll(NULL, stream, -1, &event, NULL)) == MILLRACE_OK) last = event.last;
  CHECK(status == MILLRACE_END && last);
  CHECK(millrace_cancel(stream, NULL) == MILLRACE_OK);
  millrace_stream_free(stream);
}

int main(void) {
  CHECK(millrace_abi_version() >= MILLRACE_ABI_VERSION);
  CHECK(strncmp(millrace_version(), "millrace ", 9) == 0);
  CHECK(strcmp(millrace_status_name(MILLRACE_END), "MILLRACE_END") == 0);
  CHECK(strcmp(millrace_status_name(-1), "?") == 0 && strcmp(millrace_status_name(10), "?") == 0);
  null_handles();
  millrace_model *model = NULL;
  millrace_engine *engine = NULL;
  CHECK(millrace_model_load("stories", NULL, 0, &model, NULL) == MILLRACE_OK);
  CHECK(millrace_engine_create(model, NULL, 0, &engine, NULL) == MILLRACE_OK);
  wrong_values(model, engine);
  larger_event(engine);
  threads(engine);
  freed_engine(model);
  millrace_model_free(model); /* the engine keeps it */
  threads(engine);
  millrace_engine_free(engine);
  puts("ok");
  return 0;
}
