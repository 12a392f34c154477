// Template source -> Ast.
#pragma once

#include <memory>
#include <string_view>

#include "text/template/ast.h"

namespace millrace::jinja {

// `nesting` bounds how deep brackets, operators and blocks may lie in each other. Throws Failure.
std::shared_ptr<const Ast> parse(std::string_view source, int nesting);

}  // namespace millrace::jinja
