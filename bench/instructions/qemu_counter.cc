// A plugin for qemu-user that counts the instructions a simulated program executes between marks, for
// tools/check_instructions. A mark is the system call getppid(), which programs otherwise hardly make: an odd one
// starts a count, an even one writes it to standard output as a line. The program has one thread.
//
// Debian packages no header of the plugin interface (version 1, qemu 4.2 to 8; docs/devel/tcg-plugins.rst of qemu), so
// what is used of it is declared here.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

extern "C" {

using PluginId = uint64_t;
struct TranslationBlock;  // qemu_plugin_tb
enum class InlineOperation { add_u64 };

using TranslationCallback = void (*)(PluginId id, TranslationBlock* block);
using SystemCallCallback = void (*)(PluginId id, unsigned processor, int64_t number, uint64_t, uint64_t, uint64_t,
                                    uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

size_t qemu_plugin_tb_n_insns(const TranslationBlock* block);
void qemu_plugin_register_vcpu_tb_trans_cb(PluginId id, TranslationCallback callback);
void qemu_plugin_register_vcpu_tb_exec_inline(TranslationBlock* block, InlineOperation operation, void* counter,
                                              uint64_t immediate);
void qemu_plugin_register_vcpu_syscall_cb(PluginId id, SystemCallCallback callback);

[[gnu::visibility("default")]] int qemu_plugin_version = 1;
[[gnu::visibility("default")]] int qemu_plugin_install(PluginId id, const void* info, int argc, char** argv);

}  // extern "C"

namespace {

constexpr int64_t kGetppid = 173;  // on Arm

uint64_t executed = 0;
uint64_t started = 0;
bool counting = false;

void count_block(PluginId, TranslationBlock* block) {
  qemu_plugin_register_vcpu_tb_exec_inline(block, InlineOperation::add_u64, &executed, qemu_plugin_tb_n_insns(block));
}

void watch_call(PluginId, unsigned, int64_t number, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                uint64_t, uint64_t) {
  if (number != kGetppid) return;
  if (counting) {
    dprintf(STDOUT_FILENO, "%llu\n", static_cast<unsigned long long>(executed - started));
  }
  counting = !counting;
  started = executed;
}

}  // namespace

int qemu_plugin_install(PluginId id, const void*, int, char**) {
  qemu_plugin_register_vcpu_tb_trans_cb(id, count_block);
  qemu_plugin_register_vcpu_syscall_cb(id, watch_call);
  return 0;
}
