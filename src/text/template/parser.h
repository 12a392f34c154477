// Parses a template source to an Ast.
#pragma once

#include <memory>
#include <string_view>

#include "text/template/ast.h"

namespace millrace::jinja {

// `nesting`: maximum nesting of brackets, operators and blocks. Throws Failure.
std::shared_ptr<const Ast> parse(std::string_view source, int nesting);

}  // namespace millrace::jinja
