// Prompts that are rows of the embedding table instead of tokens (docs/embedding-rows.md): vLLM's field prompt_embeds,
// here as base64 of little-endian 32-bit floats [tokens, width]. Pure functions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/api_error.h"
#include "server/generation/generation_request.h"

namespace millrace {

inline constexpr const char* kPromptRows = "prompt_embeds";

// Returns true if a prompt of the request has rows.
bool has_rows(const GenerationRequest& params);

// Reads the prompt in one text of the field; its rows may have any width yet. A text that exceeds the limits is not
// decoded.
std::optional<ApiError> read_prompt_rows(std::string_view text, const RowLimits& limits, AskedPrompt& prompt);

// Adds a token of id 0 for each row of the prompts, and checks the settings that the request combines them with.
std::optional<ApiError> place_prompt_rows(int64_t width, GenerationRequest& params);

// The engine's request of a prompt.
Request request_of(const GenerationRequest& params, const AskedPrompt& prompt);

}  // namespace millrace
