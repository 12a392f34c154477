// millrace tokenize: converts text to token ids and back without loading weights.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "base/ordered_json.h"
#include "command.h"
#include "hub_model.h"
#include "input.h"
#include "run/language_model.h"
#include "text/tokenizer.h"
#include "text/tokenizer_files.h"

namespace millrace {
namespace {

constexpr const char* kTokenizeExamples = R"(Examples:
  millrace tokenize "Hello world"                           ids and pieces with the built-in model
  millrace tokenize -m model.gguf --stdin --json < text.txt {"tokens":[...],"pieces":[...]}
  millrace tokenize -m tokenizer.json --decode 1,2,3        text)";

struct TokenizeFlags {
  std::string model, text, file, pre = "gpt-2";
  std::vector<TokenId> decode;
  bool from_stdin = false, no_bos = false, no_parse_special = false, json = false;
};

// Reads the tokenizer of a model, or a tokenizer file.
Result<TokenizerSpec> read_spec(const TokenizeFlags& flags) {
  const bool is_file = !flags.model.empty() && std::filesystem::is_regular_file(flags.model);
  if (is_file && !flags.model.ends_with(".gguf") && !flags.model.ends_with(".safetensors")) {
    MILLRACE_TRY(std::string bytes, read_text_file(flags.model));
    const std::string_view kind = sniff_tokenizer_file(bytes);
    if (kind == "tokenizer.json") return read_tokenizer_json(bytes);
    if (kind == "sentencepiece") return read_sentencepiece_model(bytes);
    if (kind == "tiktoken") return read_tiktoken(bytes, flags.pre);
    if (kind == "llama2c") return read_llama2c_tokenizer(bytes, 0);
  }
  MILLRACE_TRY(auto files, open_local_model(flags.model));
  if (!files.tokenizer)
    return Error::unsupported(fmt::format("{}: the model's files contain no tokenizer", files.path));
  return std::move(*files.tokenizer);
}

Result<std::string> read_text(const TokenizeFlags& flags) {
  if (flags.from_stdin) return read_text_file("-");
  if (!flags.file.empty()) return read_text_file(flags.file);
  return flags.text;
}

Result<int> run(const TokenizeFlags& flags, bool has_input) {
  if (!has_input) return Error::user("tokenize: requires TEXT, --stdin, --file or --decode");
  MILLRACE_TRY(TokenizerSpec spec, read_spec(flags));
  MILLRACE_TRY(auto tokenizer, Tokenizer::create(std::move(spec)));
  if (!flags.decode.empty()) {
    for (TokenId id : flags.decode)
      if (id < 0 || id >= tokenizer->vocab_size())
        return Error::user(fmt::format("--decode: {} is outside the vocabulary of {}", id, tokenizer->vocab_size()));
    const std::string text = tokenizer->decode(flags.decode);
    if (flags.json)
      print_json_line({{"text", text}});
    else
      std::fwrite(text.data(), 1, text.size(), stdout);
    if (!flags.json && isatty(STDOUT_FILENO)) std::fputs("\n", stdout);
    return 0;
  }
  MILLRACE_TRY(std::string text, read_text(flags));
  const auto ids = tokenizer->encode(text, {!flags.no_bos, !flags.no_parse_special});
  if (flags.json) {
    nlohmann::ordered_json out = {{"tokens", ids}, {"pieces", nlohmann::ordered_json::array()}};
    for (TokenId id : ids)
      out["pieces"].push_back(tokenizer->is_control(id) ? tokenizer->spec().tokens[static_cast<size_t>(id)]
                                                        : tokenizer->piece(id));
    print_json_line(out);
    return 0;
  }
  for (TokenId id : ids) {
    const std::string piece =
        tokenizer->is_control(id) ? tokenizer->spec().tokens[static_cast<size_t>(id)] : tokenizer->piece(id);
    fmt::print("{:>7}  {}\n", id, nlohmann::json(piece).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  return 0;
}

}  // namespace

void add_tokenize_command(CLI::App& app) {
  auto flags = std::make_shared<TokenizeFlags>();
  auto inputs = std::make_shared<std::vector<CLI::Option*>>();
  CLI::App* command = add_command(app, "tokenize", "Convert text to tokens, or tokens to text", kTokenizeExamples, [=] {
    int given = 0;
    for (const CLI::Option* option : *inputs) given += option->count() > 0;
    if (given > 1) return Result<int>(Error::user("tokenize: use only one of TEXT, --stdin, --file and --decode"));
    return run(*flags, given == 1);
  });
  command->add_option("-m,--model", flags->model,
                      "GGUF file, Hugging Face folder, built-in model or tokenizer file; default: the built-in one");
  *inputs = {command->add_option("text", flags->text, "Text to encode"),
             command->add_flag("--stdin", flags->from_stdin, "Encode standard input, byte for byte"),
             command->add_option("-f,--file", flags->file, "Encode a file"),
             command->add_option("--decode", flags->decode, "Token ids to decode: 1,2,3")->delimiter(',')};
  command->add_option("--pre", flags->pre, "Pre-tokenizer of a bare tiktoken file")->capture_default_str();
  command->add_flag("--no-bos,--no-special", flags->no_bos, "Do not add start and end tokens");
  command->add_flag("--no-parse-special", flags->no_parse_special, "Treat special tokens in the text as plain text");
  command->add_flag("--json", flags->json, "Print {\"tokens\":[...],\"pieces\":[...]}");
}

}  // namespace millrace
