#include "text/template/chat_template.h"

#include <fmt/format.h>

#include <exception>
#include <new>

#include "base/ordered_json.h"
#include "text/template/parser.h"
#include "text/template/runtime.h"

namespace millrace {
namespace {

// The engine throws internally; exceptions are converted to a Result here.
template <typename T, typename F>
Result<T> guarded(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (jinja::Failure& failure) {
    return Error{failure.kind, "chat template: " + failure.message};
  } catch (const std::bad_alloc&) {
    return Error::resource("chat template: out of memory");
  } catch (const std::exception& e) {
    return Error::internal(fmt::format("chat template: {}", e.what()));
  }
}

}  // namespace

ChatTemplate::ChatTemplate(std::shared_ptr<const jinja::Ast> ast, const TemplateLimits& limits)
    : ast_(std::move(ast)), limits_(limits) {}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const TemplateLimits& limits) {
  return guarded<ChatTemplate>([&] {
    if (source.size() > static_cast<size_t>(limits.source_bytes)) {
      jinja::fail_resource(
          fmt::format("the source is too long: {} bytes, at most {}", source.size(), limits.source_bytes));
    }
    return ChatTemplate(jinja::parse(source, static_cast<int>(limits.nesting)), limits);
  });
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& context, const RenderOptions& options) const {
  return guarded<std::string>([&] {
    jinja::Runtime runtime(*ast_, limits_, options);
    try {
      return runtime.render(context);
    } catch (jinja::Failure& failure) {
      if (runtime.line > 0) failure.message = fmt::format("line {}: {}", runtime.line, failure.message);
      throw;
    }
  });
}

}  // namespace millrace
