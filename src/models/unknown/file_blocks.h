// The building blocks that a file of an unknown architecture needs, told from its tensors' names and its metadata, and
// which of them a known family has. Stateless.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/unknown/nearest_arch.h"

namespace millrace {

struct FileBlock {
  std::string name;                    // "attention"
  std::string text;                    // "32 heads, 8 KV heads of 128 dims; in 10 of 40 layers"; may be ""
  std::vector<std::string> kinds;      // kinds of its tensors (tensor_kinds.h)
  std::string as_in;                   // the nearest family that reads all of them; "": there is none
  std::vector<std::string> not_built;  // those that no family reads
};

// `known`: what compare_with_known() returned for the file.
std::vector<FileBlock> file_blocks(const ModelFiles& files, std::span<const ArchComparison> known);

// The part about families, as users read it: "as in qwen3", "not built: blk.*.shortconv.conv.weight".
std::string built_text(const FileBlock& block);

}  // namespace millrace
