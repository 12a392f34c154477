// millrace doctor: what this machine offers, what of it is used, and what to do about the rest.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <langinfo.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/ordered_json.h"
#include "base/system.h"
#include "base/thread_pool.h"
#include "base/version.h"
#include "bench_report.h"
#include "command.h"
#include "config_file.h"
#include "hub/model_store.h"
#include "hub/short_names.h"
#include "input.h"
#include "kernels/bandwidth.h"
#include "kernels/kernel_table.h"
#include "parse_again.h"
#include "table_room.h"
#include "terminal/display_width.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDoctorExamples = R"(Examples:
  millrace doctor          each finding with what to do about it
  millrace doctor --json
  millrace doctor --quick  without measuring memory and disk)";

constexpr int64_t kLittleMemory = int64_t{2} << 30, kLittleDisk = int64_t{10} << 30;
constexpr int64_t kDiskTestBytes = int64_t{128} << 20;
constexpr double kSlowDisk = 0.2;  // GB/s: reading a model of 4 GB takes 20 seconds

struct Finding {
  enum class Level { good, hint, bad };
  std::string topic;
  Level level = Level::good;
  std::string text, advice;  // the advice is empty if all is well
};

class Doctor {
 public:
  std::vector<Finding> findings;

  void say(const std::string& topic, std::string text, std::string advice = "", bool bad = false) {
    const auto level = advice.empty() ? Finding::Level::good : bad ? Finding::Level::bad : Finding::Level::hint;
    findings.push_back({topic, level, std::move(text), std::move(advice)});
  }

  void processor(const Result<Isa>& chosen);
  void memory();
  void huge_pages();
  void bandwidth();
  void disk(const std::string& topic, const fs::path& folder, bool measure);
  void packages();
  void cache(const ModelStore& store);
  void settings();
};

std::string gigabytes(double bytes) { return fmt::format("{:.1f} GB", bytes * 1e-9); }

void Doctor::processor(const Result<Isa>& chosen) {
  const Isa machine = detect_isa();
  say("processor",
      fmt::format("{}, {} cores for this process", machine_facts()["cpu_info"].get<std::string>(), available_cores()));
  if (!chosen.ok()) return say("instruction set", chosen.error().message, "unset or correct MILLRACE_ISA", true);
  if (*chosen == machine)
    say("instruction set", isa_name(*chosen) + ": all that kernels here use is used");
  else
    say("instruction set", fmt::format("{} is used, the machine has {}", isa_name(*chosen), isa_name(machine)),
        "unset MILLRACE_ISA to use all of it");
  std::vector<std::string> missing;
  for (const KernelChoice& choice : kernel_choices(*chosen))
    for (const auto& one : choice.missing)
      if (const std::string name(one); std::ranges::find(missing, name) == missing.end()) missing.push_back(name);
  if (!missing.empty())
    say("not in this processor", fmt::format("{}: kernels for it exist and do not run here", fmt::join(missing, "; ")));
  if (!amx_refusal().empty()) say("AMX", "not used: " + amx_refusal(), "allow the process to use AMX tiles");
}

void Doctor::memory() {
  const AvailableMemory all = total_memory(), now = available_memory();
  const std::string text = fmt::format("{} of {} free, limited by {}", gigabytes(static_cast<double>(now.bytes)),
                                       gigabytes(static_cast<double>(all.bytes)), now.limit);
  say("memory", text,
      now.bytes < kLittleMemory ? "close other programs, or choose small models: weights, keys and values must fit"
                                : "",
      now.bytes < kLittleMemory);
}

void Doctor::huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  const size_t open = line.find('['), close = line.find(']');
  if (open == std::string::npos || close == std::string::npos)
    return say("huge pages", "the kernel does not say", "mount /sys if decoding is slow");
  const std::string mode = line.substr(open + 1, close - open - 1);
  say("huge pages", mode,
      mode == "never" ? "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: weights are then read with fewer "
                        "page table walks"
                      : "");
}

void Doctor::bandwidth() {
  ThreadPool one(1), all(available_cores());
  constexpr double kSeconds = 0.2;
  const double single = measure_read_bandwidth(one, int64_t{256} << 20, kSeconds),
               full = measure_read_bandwidth(all, int64_t{256} << 20, kSeconds);
  say("memory bandwidth",
      fmt::format(
          "{:.1f} GB/s with one thread, {:.1f} GB/s with {}: a model of 4 GB answers with at most {:.1f} tokens a "
          "second",
          single, full, all.threads(), full / 4),
      full < single * 1.2 && all.threads() > 1
          ? "threads share one memory channel, or other programs use it: -t 1 may be as "
            "fast for decoding"
          : "");
}

// Reads back what it wrote, past the page cache where the file system allows that. 0: not possible.
double measure_disk(const fs::path& folder) {
  const std::string path = (folder / fmt::format(".millrace-doctor.{}", ::getpid())).string();
  void* memory = nullptr;
  constexpr size_t kChunk = size_t{4} << 20;
  if (::posix_memalign(&memory, 4096, kChunk) != 0) return 0;
  std::memset(memory, 0x5A, kChunk);
  double rate = 0;
  const int out = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  bool good = out >= 0;
  for (int64_t done = 0; good && done < kDiskTestBytes; done += static_cast<int64_t>(kChunk))
    good = ::write(out, memory, kChunk) == static_cast<ssize_t>(kChunk);
  if (good) good = ::fsync(out) == 0;
  if (out >= 0) ::close(out);
  if (good) {
    const int in = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (in >= 0) set_direct_io(in, true);
    const auto start = std::chrono::steady_clock::now();
    int64_t bytes = 0;
    for (ssize_t n = 0; in >= 0 && (n = ::read(in, memory, kChunk)) > 0;) bytes += n;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (bytes == kDiskTestBytes) rate = static_cast<double>(bytes) * 1e-9 / seconds.count();
    if (in >= 0) ::close(in);
  }
  ::unlink(path.c_str());
  std::free(memory);
  return rate;
}

void Doctor::disk(const std::string& topic, const fs::path& folder, bool measure) {
  std::error_code failed;
  fs::path there = folder;
  while (!there.empty() && !fs::is_directory(there, failed) && there != there.parent_path())
    there = there.parent_path();
  const auto space = fs::space(there, failed);
  if (failed) return say(topic, folder.string() + ": " + failed.message(), "make the folder accessible", true);
  std::string text = fmt::format("{}: {} free", folder.string(), gigabytes(static_cast<double>(space.available)));
  std::string advice;
  if (static_cast<int64_t>(std::min<uintmax_t>(space.available, INT64_MAX)) < kLittleDisk)
    advice = "free some space: models take gigabytes; millrace list shows them, millrace rm deletes one";
  if (const double rate = measure ? measure_disk(there) : 0; rate > 0) {
    text += fmt::format(", {:.2f} GB/s read", rate);
    if (advice.empty() && rate < kSlowDisk)
      advice = "a faster disk would load models sooner; --packed-cache needs one too";
  }
  say(topic, text, advice);
}

void Doctor::packages() {
  const auto any = [](std::initializer_list<const char*> paths) {
    return std::ranges::any_of(paths, [](const char* path) {
      std::error_code ignored;
      return fs::exists(path, ignored);
    });
  };
  if (any({"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"}) ||
      std::getenv("SSL_CERT_FILE"))
    say("certificates", "found: downloads are verified");
  else
    say("certificates", "no certificate authorities found: downloads over https fail", "install ca-certificates", true);
  std::setlocale(LC_CTYPE, "");
  const std::string codes = nl_langinfo(CODESET);
  say("terminal", codes + " text",
      codes == "UTF-8" ? "" : "set LANG=C.UTF-8, so that millrace chat shows every character");
}

void Doctor::cache(const ModelStore& store) {
  const HubCache hub;
  int64_t partial = 0, dangling = 0;
  std::error_code failed;
  for (fs::recursive_directory_iterator at(hub.folder(), failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code ignored;
    partial += at->path().extension() == ".incomplete";
    dangling += at->is_symlink(ignored) && !fs::exists(at->path(), ignored);
  }
  const auto models = store.list();
  std::vector<std::string> broken;
  for (const StoredModel& model : models) {
    for (const std::string& file : model.files)
      if (!fs::exists(file, failed)) {
        broken.push_back(model.name);
        break;
      }
  }
  say("models",
      fmt::format("{} on this machine, {}", models.size(), gigabytes(static_cast<double>(disk_bytes(models)))));
  if (partial > 0)
    say("downloads", fmt::format("{} interrupted in {}", partial, hub.folder().string()),
        "repeat millrace pull to finish them, or delete *.incomplete and *.parts");
  if (dangling > 0)
    say("cache", fmt::format("{} links in {} lead nowhere", dangling, hub.folder().string()),
        "repeat millrace pull for these models, or delete the links", true);
  if (!broken.empty())
    say("store", fmt::format("files are missing of {}", fmt::join(broken, ", ")),
        "millrace rm them, and make them again", true);
}

// Returns the error in the tables and keys of a config file; "": it has none.
std::string config_error(const std::string& path) {
  CLI::App app;
  declare_commands(app);
  try {
    ConfigFile(app).from_file(path);
  } catch (const CLI::Error& error) {
    return error.what();
  }
  return "";
}

// The files that change what commands do.
void Doctor::settings() {
  const std::string config = default_config();
  if (config.empty())
    say("config file", fmt::format("none: {} would be read", fmt::join(config_places(), ", or ")));
  else if (const std::string wrong = config_error(config); !wrong.empty())
    say("config file", wrong, "correct or remove " + config, true);
  else
    say("config file", config);
  const auto names = short_names();
  const std::string file = short_names_file().string();
  if (!names.ok()) return say("short names", names.error().message, "correct the file", true);
  const auto own = std::ranges::count_if(*names, &ShortName::from_user);
  say("short names", fmt::format("{} known, {} from {}", names->size(), own, file));
}

const char* level_name(Finding::Level level) {
  switch (level) {
    case Finding::Level::good: return "ok";
    case Finding::Level::hint: return "hint";
    case Finding::Level::bad: return "problem";
  }
  return "";
}

void print_findings(const std::vector<Finding>& findings, size_t columns) {
  constexpr size_t kLevelColumns = 8, kLabelColumns = kLevelColumns + 23;
  for (const Finding& one : findings) {
    print_fact(fmt::format("{:<{}} {}", level_name(one.level), kLevelColumns, one.topic), one.text, columns,
               kLabelColumns);
    if (!one.advice.empty()) print_fact("", "-> " + one.advice, columns, kLabelColumns);
  }
}

Result<int> examine(bool json, bool quick) {
  Doctor doctor;
  const ModelStore store;
  doctor.processor(select_isa());
  doctor.memory();
  doctor.huge_pages();
  if (!quick) doctor.bandwidth();
  doctor.disk("disk of downloads", HubCache().folder(), !quick);
  doctor.disk("disk of the store", store.folder(), false);
  doctor.packages();
  doctor.cache(store);
  doctor.settings();
  if (json) {
    nlohmann::ordered_json out = {
        {"version", kVersion}, {"commit", kCommit}, {"findings", nlohmann::ordered_json::array()}};
    for (const Finding& one : doctor.findings)
      out["findings"].push_back(
          {{"topic", one.topic}, {"level", level_name(one.level)}, {"text", one.text}, {"advice", one.advice}});
    print_json_line(out);
    return 0;
  }
  fmt::print("{}\n", kVersionText);
  print_findings(doctor.findings, terminal_columns());
  return 0;
}

}  // namespace

void add_doctor_command(CLI::App& app) {
  auto json = std::make_shared<bool>(false), quick = std::make_shared<bool>(false);
  CLI::App* command = add_command(app, "doctor", "Check this machine, and say what to do", kDoctorExamples,
                                  [=] { return examine(*json, *quick); });
  command->add_flag("--json", *json, "Print one JSON object");
  command->add_flag("--quick", *quick, "Do not measure memory and disk");
}

}  // namespace millrace
