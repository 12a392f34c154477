// The factories of the built-in document contexts.
#pragma once

#include "context/document_context.h"

namespace millrace {

Result<std::unique_ptr<const DocumentContext>> make_kvlink(const OptionValues& options);

}  // namespace millrace
