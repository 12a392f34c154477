// The factories of the built-in document contexts.
#pragma once

#include "context/document_context.h"

namespace millrace {

Result<std::unique_ptr<const DocumentContext>> make_ape(const OptionValues& options);
Result<std::unique_ptr<const DocumentContext>> make_cacheblend(const OptionValues& options);
Result<std::unique_ptr<const DocumentContext>> make_cepe(const OptionValues& options);
Result<std::unique_ptr<const DocumentContext>> make_entropy(const OptionValues& options);
Result<std::unique_ptr<const DocumentContext>> make_epic(const OptionValues& options);
Result<std::unique_ptr<const DocumentContext>> make_independent(const OptionValues& options);
Result<std::unique_ptr<const DocumentContext>> make_kvlink(const OptionValues& options);

}  // namespace millrace
