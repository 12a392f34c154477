#include "text/grammar/schema.h"

#include "text/grammar/schema_compiler.h"

namespace millrace {

Result<void> compile_json_schema(GrammarSpec& spec, std::string_view text, const GrammarLimits& limits, std::vector<std::string>& notes) {
  SchemaDocument document;
  MILLRACE_TRY_VOID(document.load(text, limits.depth));
  return SchemaCompiler(spec, document, limits, notes).compile();
}

}  // namespace millrace
