// CompareSpec: one configuration of a comparison, as in `millrace compare --with`. Its parts are joined by " + ":
// choices of techniques in the syntax of `--use`, and optionally a name, another model file or another engine.
//
//   kv_format=kivi:bits=2 + evictor=streamingllm:sinks=4,window=512
//   name=4 bits + model=small-q4_0.gguf + drafter=ngram
//   engine=llama_cpp:bin=/opt/llama.cpp/bin
//   plain                                            nothing but the model's defaults
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "techniques/technique_use.h"

namespace millrace {

inline constexpr std::string_view kCompareCommand = "compare";

struct CompareSpec {
  std::string text;    // the configuration as written, with one space before and after each +
  std::string name;    // name in tables; `text` if no name is specified
  std::string model;   // a file or folder; "": the comparison's model
  std::string engine;  // NAME[:key=value,...] of another engine (external_engine.h); "": millrace
  std::vector<TechniqueUse> uses;
};

// Errors: user (an error of parse_uses(); an empty part; a second name, model or engine; techniques of millrace
// together with another engine). Messages name the part.
Result<CompareSpec> parse_compare_spec(std::string_view text);

}  // namespace millrace
