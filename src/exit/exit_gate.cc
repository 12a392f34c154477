#include "exit/exit_gate.h"

#include "base/choose.h"

namespace millrace {

Result<std::shared_ptr<const ExitGate>> make_exit_gate(std::string_view text) {
  if (text.empty() || text == "none") return std::shared_ptr<const ExitGate>();
  MILLRACE_TRY(const auto chosen, choose_member("exit", exit_gates(), text));
  MILLRACE_TRY(std::unique_ptr<ExitGate> gate, chosen.member(chosen.options));
  gate->text_ = std::string(text);
  return std::shared_ptr<const ExitGate>(std::move(gate));
}

std::string chosen_exit(std::span<const std::string> kernels) {
  for (const std::string& one : kernels)
    if (one.starts_with(kExitPrefix)) return one.substr(kExitPrefix.size());
  return "";
}

}  // namespace millrace
