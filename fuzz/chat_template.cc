// Fuzzes chat templates: any source and any context, under small limits. The input is the template, then a zero
// byte, then the context as JSON; without a zero byte the context is a fixed conversation.
#include "text/template/chat_template.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json_library.h"

namespace {

using Json = nlohmann::ordered_json;

const Json& conversation() {
  static const Json context = Json::parse(R"({"messages": [
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": "Grüße 😀"},
      {"role": "assistant", "content": null, "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": {"x": [1, 2.5, null, true]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "n": 3, "d": {"a": 1, "b": {"c": []}}})");
  return context;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  size_t zero = input.find('\0');
  Json own;
  if (zero != std::string_view::npos) own = Json::parse(input.substr(zero + 1), nullptr, false);
  millrace::TemplateLimits limits;
  limits.source_bytes = 1 << 16;
  limits.steps = 50'000;
  limits.depth = 200;
  limits.output_bytes = 1 << 16;
  limits.memory_bytes = 16 << 20;
  auto parsed = millrace::ChatTemplate::parse(input.substr(0, zero), limits);
  if (!parsed.ok()) return 0;
  millrace::RenderOptions options;
  options.now_unix_seconds = 1'700'000'000;
  auto text = parsed->render(own.is_object() ? own : conversation(), options);
  if (text.ok() && text->size() > static_cast<size_t>(limits.output_bytes)) std::abort();
  return 0;
}
