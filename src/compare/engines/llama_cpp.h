// Parsers of the output of llama.cpp's programs, for engines/llama_cpp.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compare/external_engine.h"

namespace millrace {

// `prefill`, `decode`: outputs of two runs of `llama-bench -o json`, whose records have n_prompt and n_gen. Errors:
// corrupt.
Result<ExternalSpeed> read_llama_bench(std::string_view prefill, std::string_view decode);
// Reads the running perplexities in the output of llama-perplexity, "[1]5.2013,[2]6.0110,". Returns the mean nats of
// each window. Errors: corrupt.
Result<std::vector<double>> read_llama_perplexity(std::string_view output);

// Return the body of a request to llama-server, and the text of its reply. Errors: corrupt.
std::string llama_server_body(const ExternalQuestion& question);
Result<std::string> read_llama_server(std::string_view reply, bool conversation);

}  // namespace millrace
