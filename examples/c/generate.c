/* generate [MODEL [PROMPT [NAME=VALUE ...]]]: streams an answer, with options of a request such as seed=7 max_tokens=64.
 *
 *   cc -std=c11 generate.c -o generate $(pkg-config --cflags --libs millrace)
 */
#include <millrace.h>
#include <stdio.h>
#include <string.h>

enum { MAX_OPTIONS = 32 };

/* Prints the error and frees its message. Returns the program's exit status. */
static int failed(const char *what, millrace_status status, char *error) {
  fprintf(stderr, "%s: %s: %s\n", what, millrace_status_name(status), error ? error : "no message");
  millrace_free(error);
  return 1;
}

/* Prints the events of a stream until the last one. */
static int print_answer(millrace_stream *stream) {
  millrace_event event = {.struct_size = sizeof event};
  char *error = NULL;
  millrace_status status;
  while ((status = millrace_poll(NULL, stream, -1, &event, &error)) == MILLRACE_OK) {
    fwrite(event.text, 1, event.text_bytes, stdout);
    fflush(stdout);
    if (event.finish == MILLRACE_FINISH_ERROR) {
      fprintf(stderr, "generate: %s: %s\n", millrace_status_name(event.status), event.message);
      return 1;
    }
    if (event.last) printf("\n[%lld tokens]\n", (long long)event.generated_tokens);
  }
  return status == MILLRACE_END ? 0 : failed("poll", status, error);
}

int main(int argc, char **argv) {
  const char *path = argc > 1 ? argv[1] : ""; /* "": the built-in model */
  const char *prompt = argc > 2 ? argv[2] : "Once upon a time";
  millrace_option options[MAX_OPTIONS];
  size_t option_count = 0;
  if (argc - 3 > MAX_OPTIONS) {
    fprintf(stderr, "generate: %d options: at most %d are possible\n", argc - 3, MAX_OPTIONS);
    return 2;
  }
  for (int i = 3; i < argc; ++i) {
    char *equals = strchr(argv[i], '=');
    if (!equals) {
      fprintf(stderr, "generate: %s: expected NAME=VALUE\n", argv[i]);
      return 2;
    }
    *equals = 0;
    options[option_count++] = (millrace_option){argv[i], equals + 1};
  }

  char *error = NULL;
  millrace_model *model = NULL;
  millrace_status status = millrace_model_load(path, NULL, 0, &model, &error);
  if (status != MILLRACE_OK) return failed("model", status, error);

  int result = 0;
  millrace_engine *engine = NULL;
  millrace_stream *stream = NULL;
  millrace_request request = {.struct_size = sizeof request,
                              .text = prompt,
                              .text_bytes = strlen(prompt),
                              .options = options,
                              .option_count = option_count};
  if ((status = millrace_engine_create(model, NULL, 0, &engine, &error)) != MILLRACE_OK)
    result = failed("engine", status, error);
  else if ((status = millrace_submit(engine, &request, &stream, &error)) != MILLRACE_OK)
    result = failed("request", status, error);
  else
    result = print_answer(stream);
  millrace_stream_free(stream);
  millrace_engine_free(engine);
  millrace_model_free(model);
  return result;
}
