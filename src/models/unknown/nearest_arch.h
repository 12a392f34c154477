// Files of unknown architectures, compared with what each known family reads. A file is read as if it were of the
// family, and the code that loads the family's models lists the tensors that it asks for. Stateless.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "models/arch.h"

namespace millrace {

struct ArchComparison {
  const Arch* arch = nullptr;
  // Why the configuration cannot be read as that of the family; "": it can. Otherwise tensors are compared only with
  // the names that the family has declared.
  std::string problem;
  std::vector<std::string> unread;   // fields that may change numbers and that the family does not read, with values
  std::vector<std::string> missing;  // kinds of tensors (tensor_kinds.h) that the family needs and the file lacks
  std::vector<std::string> extra;    // kinds of tensors that the file has and the family does not read
  std::vector<std::string> shapes;   // tensors of other shapes: "blk.0.attn_q.weight is [64, 32], not [32, 32]"
  std::set<std::string> reads;       // kinds of the file's tensors that the family reads

  size_t differences() const;
};

// The comparisons with all known families, the nearest first.
std::vector<ArchComparison> compare_with_known(const ModelFiles& files);

// The error for a file of an unknown architecture: names the nearest known one, and what differs. `known`: what
// compare_with_known() returned for the file.
Error unknown_architecture(const ModelFiles& files, const std::vector<ArchComparison>& known);
// As above; compares the file itself.
Error unknown_architecture(const ModelFiles& files);

}  // namespace millrace
