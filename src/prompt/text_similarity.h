// Texts of a prompt as vectors, for compressors that keep whole texts by their similarity.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "prompt/compression_task.h"

namespace millrace {

// Returns true for "part", false for "sentence". Errors: user.
Result<bool> find_by_part(std::string_view name);

// Returns the sentences of the tokens that may be dropped, or the parts of the task. A sentence does not cross a part;
// blank ones belong to the sentence before them.
std::vector<TokenRange> unit_texts(const PromptView& prompt, const CompressionTask& task, bool by_part);

// Returns a vector of length 1 for each range of tokens. `center`: the mean of all vectors is subtracted before.
// Errors: those of `scores`.
Result<std::vector<std::vector<float>>> embed_ranges(const PromptView& prompt, std::span<const TokenRange> texts,
                                                     const std::string& model, bool center, PromptScores& scores);

double dot(std::span<const float> a, std::span<const float> b);

// Returns the tokens that remain: all fixed ones, and the texts in the order of `order` as long as they fit into
// task.keep. A text that does not fit is passed over; if none fits, the first one is cut.
std::vector<int64_t> keep_texts(const CompressionTask& task, std::span<const TokenRange> texts,
                                std::span<const size_t> order);

}  // namespace millrace
