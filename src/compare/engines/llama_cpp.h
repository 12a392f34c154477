// Parsers of the output of llama.cpp's programs, for engines/llama_cpp.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compare/external_engine.h"

namespace millrace {

// The JSON of two runs of `llama-bench -o json`: a record with n_prompt, and one with n_gen. Errors: corrupt.
Result<ExternalSpeed> read_llama_bench(std::string_view prefill, std::string_view decode);
// The running perplexities of llama-perplexity, "[1]5.2013,[2]6.0110,": the mean nats of each window. Errors: corrupt.
Result<std::vector<double>> read_llama_perplexity(std::string_view output);

// The body of a request to llama-server, and the text of its answer. Errors: corrupt.
std::string llama_server_body(const ExternalQuestion& question);
Result<std::string> read_llama_server(std::string_view reply, bool conversation);

}  // namespace millrace
