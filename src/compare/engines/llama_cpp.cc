// llama.cpp and engines made from it (ik_llama.cpp), by the user's build of llama-bench, llama-perplexity and
// llama-server.
#include "compare/engines/llama_cpp.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "base/json_text.h"
#include "compare/engines/factories.h"
#include "compare/engines/http_call.h"
#include "compare/engines/process.h"

namespace millrace {
namespace {

using BenchJson = nlohmann::ordered_json;

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = text.find_first_not_of(' '); begin != std::string::npos;) {
    const size_t end = std::min(text.size(), text.find(' ', begin));
    out.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(' ', end);
  }
  return out;
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of("\n ");
  if (end == std::string::npos) return "it printed nothing";
  const size_t begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? 0 : begin + 1) + 1)
      .substr(0, 200);
}

// A file with this text, removed with the object.
class TextFile {
 public:
  static Result<TextFile> create(const std::string& text) {
    TextFile out;
    std::string path = (std::filesystem::temp_directory_path() / "millrace-compare-XXXXXX").string();
    const int fd = ::mkstemp(path.data());
    if (fd < 0) return Error::resource(fmt::format("{}: cannot be created", path));
    out.path_ = path;
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    ::close(fd);
    if (done < text.size()) return Error::resource(fmt::format("{}: cannot be written", path));
    return out;
  }
  TextFile(TextFile&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  ~TextFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  TextFile() = default;
  std::string path_;
};

constexpr std::chrono::seconds kServerStart{120}, kServerHealth{5};  // for loading the model; for one question

class LlamaServer final : public ExternalServer {
 public:
  static Result<std::unique_ptr<ExternalServer>> start(std::vector<std::string> arguments,
                                                       const ExternalEngine::Wanted& wanted) {
    MILLRACE_TRY(const int port, free_local_port());
    for (const std::string& more :
         {std::string("--host"), std::string("127.0.0.1"), std::string("--port"), std::to_string(port)})
      arguments.push_back(more);
    MILLRACE_TRY(auto process, BackgroundProcess::start(arguments));
    const auto until = std::chrono::steady_clock::now() + kServerStart;
    while (std::chrono::steady_clock::now() < until) {
      if (!wanted()) return Error::cancelled("interrupted");
      if (!process->running())
        return Error::user(fmt::format("{}: ended before it answered; run it by hand to see why", arguments[0]));
      const auto health = local_http_call(port, "/health", "", wanted, kServerHealth);
      if (health.ok() && health->status == 200)
        return std::unique_ptr<ExternalServer>(new LlamaServer(port, std::move(process)));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return Error::user(fmt::format("{}: is not ready after {} s", arguments[0], kServerStart.count()));
  }

  Result<std::string> answer(const ExternalQuestion& question, const std::function<bool()>& wanted) override {
    const bool conversation = !question.messages.empty();
    MILLRACE_TRY(const LocalReply reply, local_http_call(port_, conversation ? "/v1/chat/completions" : "/completion",
                                                         llama_server_body(question), wanted));
    if (reply.status != 200)
      return Error::user(fmt::format("llama-server: answered {}: {}", reply.status, reply.body.substr(0, 200)));
    return read_llama_server(reply.body, conversation);
  }

 private:
  LlamaServer(int port, std::unique_ptr<BackgroundProcess> process) : port_(port), process_(std::move(process)) {}

  int port_;
  std::unique_ptr<BackgroundProcess> process_;
};

class LlamaCpp final : public ExternalEngine {
 public:
  LlamaCpp(std::string folder, std::vector<std::string> arguments, ExternalModel model)
      : folder_(std::move(folder)), arguments_(std::move(arguments)), model_(std::move(model)) {}

  Result<ExternalSpeed> speed(int64_t prompt, int64_t generate, const Wanted& wanted) const override {
    const auto bench = [&](int64_t p, int64_t n, const std::vector<std::string>& more) {
      std::vector<std::string> own = {"-p", std::to_string(p), "-n", std::to_string(n), "-r", "1", "-o", "json"};
      own.insert(own.end(), more.begin(), more.end());
      return run("llama-bench", own, wanted);
    };
    const auto knows = [](const Result<ProcessOutput>& done) {
      return done.ok() || done.error().kind != ErrorKind::user;
    };
    MILLRACE_TRY(const auto prefill, bench(prompt, 0, {}));
    auto decode = bench(0, generate, {"-d", std::to_string(prompt)});
    if (!knows(decode)) decode = bench(0, 0, {"-gp", fmt::format("{},{}", prompt, generate)});  // ik_llama.cpp
    const bool after_prompt = knows(decode);
    if (!after_prompt) decode = bench(0, generate, {});  // older builds have neither
    if (!decode.ok()) return decode.error();
    MILLRACE_TRY(ExternalSpeed speed, read_llama_bench(prefill.output, decode->output));
    speed.after_prompt = after_prompt;
    return speed;
  }

  Result<std::vector<double>> window_nll(const std::string& text, int64_t window, int64_t windows,
                                         const Wanted& wanted) const override {
    MILLRACE_TRY(const TextFile file, TextFile::create(text));
    MILLRACE_TRY(const auto done,
                 run("llama-perplexity",
                     {"-f", file.path(), "-c", std::to_string(window), "--chunks", std::to_string(windows)}, wanted));
    return read_llama_perplexity(done.output + "\n" + done.errors);
  }

  Result<std::unique_ptr<ExternalServer>> serve(int64_t longest, const Wanted& wanted) const override {
    // --jinja: the model's own chat template, which some builds else replace with one that looks like it.
    return LlamaServer::start(command("llama-server", {"-c", std::to_string(longest), "-np", "1", "--jinja"}), wanted);
  }

 private:
  std::vector<std::string> command(const std::string& program, const std::vector<std::string>& own) const {
    std::vector<std::string> all = {(std::filesystem::path(folder_) / program).string(), "-m", model_.path, "-t",
                                    std::to_string(model_.threads)};
    all.insert(all.end(), own.begin(), own.end());
    all.insert(all.end(), arguments_.begin(), arguments_.end());
    return all;
  }

  Result<ProcessOutput> run(const std::string& program, const std::vector<std::string>& own,
                            const Wanted& wanted) const {
    const std::vector<std::string> all = command(program, own);
    MILLRACE_TRY(ProcessOutput done, run_process(all, wanted));
    if (done.exit_code != 0)
      return Error::user(fmt::format("{}: ended with {}: {}", all.front(), done.exit_code,
                                     last_line(done.errors.empty() ? done.output : done.errors)));
    return done;
  }

  std::string folder_;
  std::vector<std::string> arguments_;
  ExternalModel model_;
};

}  // namespace

Result<ExternalSpeed> read_llama_bench(std::string_view prefill, std::string_view decode) {
  ExternalSpeed speed;
  for (const std::string_view output : {prefill, decode}) {
    const BenchJson records = parse_json(output.substr(std::min(output.size(), output.find('['))));
    if (!records.is_array()) continue;
    for (const BenchJson& record : records) {
      const auto number = [&](const char* name) {
        const auto found = record.is_object() ? record.find(name) : record.end();
        return record.is_object() && found != record.end() && found->is_number() ? found->get<double>() : 0.0;
      };
      const bool named = record.is_object() && record.contains("test") && record["test"].is_string();
      const bool after_prompt = named && record["test"].get<std::string>().starts_with("tg");  // -gp: "tg64@pp256"
      if (number("n_gen") == 0) speed.prefill_tokens_per_s = number("avg_ts");
      if (number("n_gen") > 0 && (number("n_prompt") == 0 || after_prompt))
        speed.decode_tokens_per_s = number("avg_ts");
    }
  }
  if (!(speed.prefill_tokens_per_s > 0 && speed.decode_tokens_per_s > 0))
    return Error::corrupt("llama-bench: printed no JSON with the speeds of a prompt and of an answer");
  return speed;
}

Result<std::vector<double>> read_llama_perplexity(std::string_view output) {
  std::vector<double> out;
  double before = 0;
  for (size_t at = 0; (at = output.find(fmt::format("[{}]", out.size() + 1), at)) != std::string_view::npos;) {
    at = output.find(']', at) + 1;
    double perplexity = 0;
    const auto [rest, error] = std::from_chars(output.data() + at, output.data() + output.size(), perplexity);
    if (error != std::errc() || rest == output.data() + output.size() || *rest != ',' || !(perplexity >= 1)) continue;
    const double sum = std::log(perplexity) * static_cast<double>(out.size() + 1);
    out.push_back(sum - before);
    before = sum;
  }
  if (out.empty()) return Error::corrupt("llama-perplexity: printed no perplexities, \"[1]5.2,[2]6.0,\"");
  return out;
}

std::string llama_server_body(const ExternalQuestion& question) {
  BenchJson body = {{"temperature", 0}, {"cache_prompt", false}, {"stream", false}};
  if (question.messages.empty()) {
    body["prompt"] = question.text;
    body["n_predict"] = question.max_tokens;
  } else {
    body["messages"] = parse_json(question.messages);
    body["max_tokens"] = question.max_tokens;
  }
  if (!question.stop.empty()) body["stop"] = question.stop;
  return body.dump(-1, ' ', false, BenchJson::error_handler_t::replace);
}

Result<std::string> read_llama_server(std::string_view reply, bool conversation) {
  const BenchJson json = parse_json(reply);
  const auto text = [](const BenchJson& object, const char* name) -> std::optional<std::string> {
    if (!object.is_object() || !object.contains(name) || !object[name].is_string()) return std::nullopt;
    return object[name].get<std::string>();
  };
  std::optional<std::string> out;
  if (!conversation) {
    out = text(json, "content");
  } else if (json.is_object() && json.contains("choices") && json["choices"].is_array() && !json["choices"].empty() &&
             json["choices"][0].is_object() && json["choices"][0].contains("message")) {
    out = text(json["choices"][0]["message"], "content");
  }
  if (!out) return Error::corrupt("llama-server: answered without a text");
  return *out;
}

Result<std::shared_ptr<const ExternalEngine>> make_llama_cpp(const OptionValues& options, const ExternalModel& model) {
  if (options.text("bin").empty())
    return Error::user("engine llama_cpp: needs the folder of its programs; write engine=llama_cpp:bin=FOLDER");
  return std::shared_ptr<const ExternalEngine>(
      std::make_shared<LlamaCpp>(options.text("bin"), split_words(options.text("args")), model));
}

}  // namespace millrace
