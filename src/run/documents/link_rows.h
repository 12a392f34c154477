// LinkRows: embeddings that were trained to be placed behind each document of a prompt (context/contexts/kvlink.cc),
// from a file. An engine reads them once; requests share them. Immutable, so several threads may use one at once.
//
//   file     [ row 0 | row 1 ] [ row 2 | row 3 ] ...      `each` rows for every document, from row `first` on
//   prompt   <s> [document 0] r0 r1 [document 1] r2 r3 question
#pragma once

#include <memory>
#include <vector>

#include "base/memory_accounts.h"
#include "context/document_context.h"

namespace millrace {

class LinkRows {
 public:
  // A safetensors file or folder: its only tensor, or the embeddings of its tokens; or a GGUF file with the latter.
  // Rows are of a model of this width, and charged to its accounts. Errors: those of the file; user (no such rows),
  // corrupt (NaN or infinity), unsupported (a type), resource.
  static Result<std::unique_ptr<const LinkRows>> load(const LinkRowsChoice& choice, int64_t width,
                                                      std::shared_ptr<MemoryAccounts> accounts);

  // Puts rows in place of the links that add_links() has put behind each document. Errors: user (another choice, more
  // documents than there are rows for).
  Result<void> put(const LinkRowsChoice& choice, Request& request) const;

 private:
  LinkRowsChoice choice_;
  MemoryHold memory_;
  std::vector<std::shared_ptr<const std::vector<float>>> rows_;  // rows of each document, [each, width]
};

}  // namespace millrace
