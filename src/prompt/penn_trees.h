// Reads constituency parses in the brackets of the Penn Treebank, and finds the constituents of a sentence in them.
//
//   (S (NP (DT The) (NN man)) (VP (VBD left) (ADVP (RB quickly)) (PP (IN for) (NP (NNP Rome)))) (. .))
//
// Modifiers are PP, ADVP, PRN, RRC and INTJ, relative and adverbial clauses, reduced relatives, adjectives before a
// noun, and what a function tag marks as adverbial (NP-TMP). Pure functions.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "prompt/compressor.h"
#include "prompt/constituents.h"

namespace millrace {

// A parse by its leaves. `text`: the leaves without white space between them, brackets and quotes as they are written
// in text (-LRB- is an opening bracket). Ranges of `constituents` are bytes of `text`.
struct PennTree {
  struct Leaf {
    size_t begin = 0, count = 0;  // bytes of the source
    size_t text_begin = 0;        // place in `text`
  };

  size_t begin = 0, end = 0;  // bytes of the source
  std::string text;
  std::vector<Leaf> leaves;
  Constituents constituents;  // in bytes of `text`
};

// Returns the trees of a source that consists of trees and white space. Errors: user (other text, brackets that do not
// match, a tree without words, trees too deep).
Result<std::vector<PennTree>> read_penn_trees(std::string_view source);

// Returns `text` without white space, which is compared with PennTree::text.
std::string penn_key(std::string_view text);

// The parses of a file, by penn_key() of their sentences.
class ParseFile final : public PromptFile {
 public:
  // Errors: those of the file and of read_penn_trees(); user (the file is too large).
  static Result<std::shared_ptr<const ParseFile>> open(const std::string& path);

  // Null: the file has no parse of it.
  const PennTree* find(const std::string& key) const;

 private:
  std::map<std::string, PennTree, std::less<>> trees_;
};

}  // namespace millrace
