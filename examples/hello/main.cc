// hello [MODEL [PROMPT]]: loads a model, submits one request and prints its events as they arrive.
#include <millrace/engine.h>

#include <cstdio>

int fail(const millrace::Error& error) {
  std::fprintf(stderr, "hello: %s\n", error.message.c_str());
  return millrace::exit_code(error.kind);
}

int main(int argc, char** argv) {
  auto model = millrace::LanguageModel::load(argc > 1 ? argv[1] : "");  // "": the embedded model
  if (!model) return fail(model.error());
  auto engine = millrace::Engine::create(*model);
  if (!engine) return fail(engine.error());
  auto prompt = (*model)->encode(argc > 2 ? argv[2] : "Once upon a time");
  if (!prompt) return fail(prompt.error());

  millrace::Request request;
  request.prompt = *prompt;
  request.sampling.seed = 1;
  request.max_tokens = 32;
  auto stream = (*engine)->submit(request);
  if (!stream) return fail(stream.error());
  while (auto event = (*stream)->next()) {
    std::fputs(event->text.c_str(), stdout);
    if (event->finish == millrace::FinishReason::error) return fail(event->error);
    if (event->finish != millrace::FinishReason::none)
      std::printf("\n[%s, %lld tokens]\n", finish_reason_name(event->finish),
                  (long long)event->timings.generated_tokens);
  }
}
