// NamedIndexes: the indexes that requests of a server may name, each opened with its embedding model when the server
// starts. Immutable; thread-safe.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "retrieve/retriever.h"

namespace millrace {

class NamedIndexes {
 public:
  // `named`: texts NAME=FOLDER. `threads`: of each model; 0: all cores. Errors: user (a malformed or repeated name),
  // those of opening an index and of loading its model.
  static Result<std::shared_ptr<const NamedIndexes>> open(std::span<const std::string> named, const ModelLoader& load,
                                                          int threads);
  const Retriever* find(const std::string& name) const;  // null: there is none
  std::string names() const;                             // "a, b"

 private:
  std::map<std::string, std::unique_ptr<Retriever>> all_;
};

}  // namespace millrace
