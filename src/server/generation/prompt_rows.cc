#include "server/generation/prompt_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "server/api/base64.h"

namespace millrace {
namespace {

constexpr size_t kValueBytes = 4;

float little_endian_float(const char* at) {
  uint32_t bits = 0;
  for (size_t i = 0; i < kValueBytes; ++i) bits |= uint32_t{static_cast<unsigned char>(at[i])} << (8 * i);
  return std::bit_cast<float>(bits);
}

// What cannot be said of a prompt without tokens.
std::optional<ApiError> check_rest(const GenerationRequest& params) {
  const auto refuse = [](const char* field, const char* why) { return ApiError::unsupported(field, why); };
  if (params.echo) return refuse("echo", "rows of prompt_embeds have no text; omit it");
  if (params.infill) return refuse("suffix", "rows of prompt_embeds have no text; omit it");
  if (params.return_tokens) return refuse("return_token_ids", "rows of prompt_embeds have no token ids; omit it");
  if (params.prompt_logprobs >= 0) return refuse("prompt_logprobs", "rows of prompt_embeds are not scored; omit it");
  if (params.truncate_prompt != 0)
    return refuse("truncate_prompt_tokens", "rows of prompt_embeds are not truncated; send fewer of them");
  if (!params.documents.empty()) return refuse("millrace.documents", "cannot be combined with prompt_embeds");
  if (!params.prompt_passes.empty()) return refuse("millrace.use", "rows of prompt_embeds are not compressed");
  return std::nullopt;
}

}  // namespace

bool has_rows(const GenerationRequest& params) {
  return std::ranges::any_of(params.prompts, [](const AskedPrompt& prompt) { return prompt.rows != nullptr; });
}

std::optional<ApiError> read_prompt_rows(std::string_view text, const RowLimits& limits, AskedPrompt& prompt) {
  if (!limits.enabled)
    return ApiError::unsupported(kPromptRows, "is switched off on this server; start it with --enable-prompt-embeds");
  const auto least_bytes = static_cast<int64_t>(text.size() / 4 * 3) - 2;  // with padding
  if (limits.width > 0 && least_bytes > limits.context * limits.width * static_cast<int64_t>(kValueBytes))
    return ApiError{ApiErrorKind::too_long,
                    fmt::format("{}: has more rows than the context of {} tokens", kPromptRows, limits.context),
                    kPromptRows};
  const auto bytes = base64_bytes(text);
  if (!bytes) return ApiError::bad(kPromptRows, "is not base64 (RFC 4648, with padding)");
  if (bytes->starts_with("PK"))
    return ApiError::bad(kPromptRows,
                         "is a file written by torch.save; send its values: base64 of little-endian float32 [tokens, "
                         "width]");
  if (bytes->empty()) return ApiError::bad(kPromptRows, "is empty");
  if (bytes->size() % kValueBytes != 0)
    return ApiError::bad(kPromptRows, fmt::format("has {} bytes, which are not whole float32 values", bytes->size()));
  std::vector<float> rows(bytes->size() / kValueBytes);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = little_endian_float(bytes->data() + i * kValueBytes);
  if (std::ranges::any_of(rows, [](float value) { return !(value - value == 0.0f); }))
    return ApiError::bad(kPromptRows, "holds NaN or infinity");
  prompt.rows = std::make_shared<const std::vector<float>>(std::move(rows));
  return std::nullopt;
}

std::optional<ApiError> place_prompt_rows(int64_t width, GenerationRequest& params) {
  if (!has_rows(params)) return std::nullopt;
  if (auto wrong = check_rest(params)) return wrong;
  for (AskedPrompt& prompt : params.prompts) {
    if (!prompt.rows) continue;
    const auto values = std::ssize(*prompt.rows);
    if (values % width != 0)
      return ApiError::bad(kPromptRows,
                           fmt::format("has {} values, which are not rows of {}, the model's width", values, width));
    prompt.tokens.assign(static_cast<size_t>(values / width), 0);
  }
  return std::nullopt;
}

Request request_of(const GenerationRequest& params, const AskedPrompt& prompt) {
  Request request = params.request;
  request.prompt = prompt.tokens;
  if (prompt.rows) request.embeddings = {{.begin = 0, .rows = prompt.rows}};
  return request;
}

}  // namespace millrace
