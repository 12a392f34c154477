#include "server/generation/infill.h"

#include <fmt/format.h>

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

constexpr size_t kMaxFiles = 1024;
constexpr int64_t kRoomForAnswer = 256;  // tokens, if the request sets no limit

InfillText& infill_of(GenerationRequest& params) {
  if (!params.infill) params.infill.emplace();
  return *params.infill;
}

Wrong read_files(const Json& list, GenerationRequest& params) {
  std::vector<InfillFile>& files = infill_of(params).files;
  files.clear();
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& file = list[i];
    const std::string where = fmt::format("input_extra[{}]", i);
    const auto text_of = [&](const char* name) {
      return file.contains(name) && file[name].is_string() ? file[name].get<std::string>() : std::string();
    };
    if (!file.is_object()) return ApiError::bad(where, "must be an object");
    if (!file.contains("text") || !file["text"].is_string()) return ApiError::bad(where + ".text", "must be a string");
    files.push_back({text_of("filename"), text_of("text")});
  }
  return std::nullopt;
}

Field text_field(const char* name, const char* help, void (*set)(GenerationRequest& params, std::string text)) {
  Field field{name, kJsonText, "", help};
  field.set = [set](const Json& value, GenerationRequest& params) -> Wrong {
    set(params, value.get<std::string>());
    return std::nullopt;
  };
  return field;
}

}  // namespace

Field suffix_field() {
  return text_field("suffix", "what follows the output, for models trained to fill in the middle",
                    [](GenerationRequest& params, std::string text) {
                      if (!text.empty()) infill_of(params).suffix = std::move(text);
                    });
}

std::vector<Field> infill_fields() {
  Field prefix =
      text_field("input_prefix", "what comes before the middle", [](GenerationRequest& params, std::string text) {
        params.prompts.assign(1, {std::move(text), {}});
      });
  Field suffix = text_field("input_suffix", "what follows it", [](GenerationRequest& params, std::string text) {
    infill_of(params).suffix = std::move(text);
  });
  prefix.required = suffix.required = true;
  Field files{"input_extra", kJsonList, "[]",
              "other files to read: objects with \"filename\" and \"text\"; what does not fit is dropped from the "
              "beginning, and `truncated` says so"};
  files.most = kMaxFiles;
  files.set = read_files;
  return {prefix, suffix, files,
          text_field("prompt", "how the middle begins",
                     [](GenerationRequest& params, std::string text) { infill_of(params).begun = std::move(text); })};
}

std::optional<ApiError> make_infill_prompts(const LanguageModel& model, int64_t context, GenerationRequest& params) {
  const int64_t wanted = params.request.max_tokens > 0 ? params.request.max_tokens : kRoomForAnswer;
  const int64_t most = context - std::min(wanted, context / 2);
  for (AskedPrompt& prompt : params.prompts) {
    if (prompt.tokens.empty() && !prompt.text.empty()) {
      auto tokens = model.encode(prompt.text, /*add_special=*/false, /*parse_special=*/false);
      if (!tokens.ok()) return ApiError::from(tokens.error());
      prompt.tokens = std::move(*tokens);
    } else if (prompt.text.empty()) {
      prompt.text = model.decode(prompt.tokens);
    }
    auto filled = infill_prompt(model, prompt.tokens, *params.infill, most);
    if (!filled.ok()) return ApiError::from(filled.error());
    prompt.tokens = std::move(filled->tokens);
    params.truncated |= filled->dropped_tokens > 0;
  }
  return std::nullopt;
}

}  // namespace millrace
