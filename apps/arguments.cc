#include "arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <set>
#include <sstream>

#include "foreign_flags.h"

namespace millrace {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* one) { return !one->get_name().empty(); });
}

const CLI::Option* option_called(const CLI::App& command, const std::string& name) {
  for (const CLI::Option* option : all_options(command))
    if (option->nonpositional() && option->check_name(name)) return option;
  return nullptr;
}

bool looks_like_flag(std::string_view argument) {
  return argument.size() > 1 && argument[0] == '-' && !std::isdigit(static_cast<unsigned char>(argument[1])) &&
         argument[1] != '.';
}

bool takes_number(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT");
}

bool begins_number(std::string_view text) {
  return !text.empty() && (std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '-' || text[0] == '.');
}

bool is_switch_word(const std::string& text) {
  static const std::set<std::string> words = {"on", "off", "auto", "true", "false", "enabled", "disabled", "0", "1"};
  return words.contains(text);
}

// "; did you mean run?", or where the names are listed.
std::string hint(std::string_view word, const std::vector<std::string>& names, const std::string& listing) {
  const std::string near = suggestion(word, names);
  return near.empty() ? fmt::format("; `{}` lists them", listing) : near;
}

// CLI11's "--port: Value 99999 not in range 0 to 65535" as "--port 99999: must be 0 to 65535", or, of a value that is
// no number, "must be a whole number".
std::string range_error(const CLI::App& command, const std::string& text) {
  const size_t value = text.find(": Value "), range = text.find(" not in range ");
  if (value == std::string::npos || range == std::string::npos || range < value) return text;
  const std::string flag = text.substr(0, value), given = text.substr(value + 8, range - value - 8);
  const CLI::Option* option = option_called(command, flag);
  const bool whole = option && !option->get_type_name().starts_with("FLOAT");
  if (given.find_first_not_of("+-.0123456789eE") != std::string::npos || given.empty())
    return fmt::format("{} {}: must be a {}", flag, given, whole ? "whole number" : "number");
  return fmt::format("{} {}: must be {}", flag, given, text.substr(range + 14));
}

// The error of a value that is no number of the option's type.
std::string conversion_error(const CLI::Option* option, const std::string& flag, const std::string& value) {
  const std::string type = option ? option->get_type_name() : "";
  const bool negative = value.starts_with('-');
  const bool digits =
      value.size() > size_t{negative} && value.find_first_not_of("0123456789", negative ? 1 : 0) == std::string::npos;
  if (!digits || type.starts_with("FLOAT"))
    return fmt::format("{} {}: must be a {}", flag, value, type.starts_with("FLOAT") ? "number" : "whole number");
  if (negative && type.starts_with("UINT")) return fmt::format("{} {}: must be 0 or more", flag, value);
  return fmt::format("{} {}: is too {}", flag, value, negative ? "small" : "large");
}

// One walk over the arguments.
class ArgumentWalk {
 public:
  ArgumentWalk(const CLI::App& app, const std::vector<std::string>& given) : app_(app), given_(given) {}

  Result<CheckedArguments> run() {
    if (!given_.empty()) out_.arguments.push_back(given_[0]);
    for (at_ = 1; at_ < given_.size();) {
      const std::string& argument = given_[at_];
      if (argument == "--") break;
      if (looks_like_flag(argument)) {
        MILLRACE_TRY_VOID(take_flag(argument));
      } else {
        MILLRACE_TRY_VOID(take_word(argument));
      }
    }
    out_.arguments.insert(out_.arguments.end(),
                          given_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, given_.size())), given_.end());
    return std::move(out_);
  }

 private:
  const CLI::Option* find(const std::string& name) const {
    for (const CLI::App* app = command_; app; app = app->get_parent())
      if (const CLI::Option* option = option_called(*app, name)) return option;
    return command_ ? nullptr : option_called(app_, name);
  }

  Result<void> take_word(const std::string& word) {
    out_.arguments.push_back(word);
    ++at_;
    const CLI::App* before = command_;
    const auto commands = commands_of(before ? *before : app_);
    std::vector<std::string> names;
    for (const CLI::App* one : commands) {
      if (one->check_name(word)) command_ = one;
      names.push_back(one->get_name());
    }
    if (!before && command_) out_.command = command_->get_name();
    if (command_ != before || commands.empty()) return {};
    const std::string place = before ? before->get_name() + " " : "";
    return Error::user(
        fmt::format("{}{}: no such command{}", place, word, hint(word, names, "millrace " + place + "--help")));
  }

  // Copies a flag with the values that belong to it whatever they look like.
  void copy(const CLI::Option& option, std::string flag, bool has_value) {
    for (const char* name : {"--help", "--help-all", "--version"}) out_.describes |= option.check_name(name);
    out_.arguments.push_back(std::move(flag));
    ++at_;
    for (int i = 0; !has_value && i < option.get_items_expected_min() && at_ < given_.size(); ++i)
      out_.arguments.push_back(given_[at_++]);
  }

  Result<void> take_flag(const std::string& argument) {
    const size_t equals = argument.starts_with("--") ? argument.find('=') : std::string::npos;
    std::string name = argument.substr(0, equals);
    const std::string rest = equals == std::string::npos ? "" : argument.substr(equals);
    if (const CLI::Option* option = find(name)) {
      copy(*option, argument, !rest.empty());
      return {};
    }
    if (command_ && option_called(*command_, "--model"))
      for (const ForeignFlag* foreign : foreign_flags_called(name))
        if (foreign->kind != ForeignFlag::Kind::same ||
            find(std::string(foreign->text.substr(0, foreign->text.find_first_of(" =")))))
          return take_foreign(*foreign, name, rest);
    if (name.starts_with("--")) {
      std::string dashes = name;
      std::ranges::replace(dashes.begin() + 2, dashes.end(), '_', '-');
      if (const CLI::Option* option = find(dashes)) {
        copy(*option, dashes + rest, !rest.empty());
        return {};
      }
      return unknown(name);
    }
    return take_cluster(argument);
  }

  Result<void> take_foreign(const ForeignFlag& foreign, const std::string& name, const std::string& rest) {
    using Kind = ForeignFlag::Kind;
    using Value = ForeignFlag::Value;
    if (foreign.kind == Kind::refused)
      return Error::user(fmt::format("{}: {}: {}", command_->get_name(), name, foreign.text));
    std::string value = rest.empty() ? "" : rest.substr(1);
    ++at_;
    const bool has_next = rest.empty() && at_ < given_.size();
    if (foreign.value == Value::one && rest.empty() && !has_next)
      return Error::user(fmt::format("{}: {}: needs a value", command_->get_name(), name));
    if (has_next && (foreign.value == Value::one || (foreign.value == Value::on_off && is_switch_word(given_[at_]))))
      value = given_[at_++];
    if (foreign.kind == Kind::ignored) {
      out_.notes.push_back(fmt::format("{}: ignored: {}", name, foreign.text));
      return {};
    }
    std::istringstream flags{std::string(foreign.text)};
    for (std::string flag; flags >> flag;) {
      out_.arguments.push_back(flag);
      if (foreign.value == Value::one) out_.arguments.push_back(std::string(foreign.prefix) + value);
    }
    return {};
  }

  // "-t4", "-mFILE", or several switches in one argument.
  Result<void> take_cluster(const std::string& argument) {
    const CLI::Option* first = find(argument.substr(0, 2));
    const std::string rest = argument.substr(2);
    const bool misspelled = find("-" + argument) != nullptr;  // -temp for --temp
    if (first && !misspelled && first->get_items_expected_max() > 0 && (!takes_number(*first) || begins_number(rest))) {
      out_.arguments.push_back(argument);
      ++at_;
      return {};
    }
    bool switches = first && !misspelled;
    for (const char c : argument.substr(1)) {
      const CLI::Option* one = find(std::string("-") + c);
      switches = switches && one && one->get_items_expected_max() == 0;
    }
    if (!switches) return unknown(argument);
    out_.arguments.push_back(argument);
    ++at_;
    return {};
  }

  Result<void> unknown(const std::string& name) const {
    std::vector<std::string> names;
    for (const CLI::Option* option : all_options(command_ ? *command_ : app_))
      for (const std::string& one : option->get_lnames()) names.push_back("--" + one);
    const std::string place = command_ ? command_->get_name() : "millrace";
    const std::string wanted = name.starts_with("--") ? name : "-" + name;
    return Error::user(
        fmt::format("{}: unknown flag {}{}", place, name,
                    hint(wanted, names, fmt::format("millrace {}--help-all", command_ ? place + " " : ""))));
  }

  const CLI::App& app_;
  const std::vector<std::string>& given_;
  const CLI::App* command_ = nullptr;
  size_t at_ = 1;
  CheckedArguments out_;
};

// Damerau-Levenshtein distance with neighbours exchanged: "rnu" and "run" differ by 1.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  std::iota(d[0].begin(), d[0].end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

std::vector<const CLI::Option*> all_options(const CLI::App& command) {
  std::vector<const CLI::Option*> out = command.get_options();
  for (const CLI::App* group : command.get_subcommands([](const CLI::App* one) { return one->get_name().empty(); })) {
    const auto more = all_options(*group);
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

void take_one_value_each(CLI::App* command) {
  for (CLI::Option* option : command->get_options())
    if (!option->get_positional() && option->get_items_expected_min() == 1) option->allow_extra_args(false);
  for (CLI::App* group : command->get_subcommands([](CLI::App* one) { return one->get_name().empty(); }))
    take_one_value_each(group);
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 64) return "";
  const std::string_view bare = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  const size_t most = std::max<size_t>(1, bare.size() / 3);
  std::string best;
  size_t least = most + 1;
  for (const std::string& candidate : candidates)
    if (const size_t distance = edits(word, candidate); distance < least) {
      least = distance;
      best = candidate;
    }
  if (!best.empty()) return best;
  const auto longer = std::ranges::find_if(
      candidates, [&](const std::string& one) { return bare.size() >= 3 && one.starts_with(word); });
  return longer == candidates.end() ? "" : *longer;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = nearest_word(word, candidates);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

Result<CheckedArguments> check_arguments(const CLI::App& app, const std::vector<std::string>& given) {
  return ArgumentWalk(app, given).run();
}

std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto called = app.get_subcommands();
  const std::string command = called.empty() ? "millrace" : called.front()->get_name();
  std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) && !called.empty()) {
    const auto extra = app.remaining(true);
    if (!extra.empty())
      text = fmt::format("'{}' is not expected here: values follow their flag{}", extra.front(),
                         called.front()->get_option_no_throw("--prompt") ? ", a prompt is -p TEXT" : "");
  }
  constexpr std::string_view kConvert = "Could not convert: ";
  if (text.starts_with(kConvert)) {
    text.erase(0, kConvert.size());
    if (const size_t equals = text.find(" = "); equals != std::string::npos) {
      const std::string flag = text.substr(0, equals), value = text.substr(equals + 3);
      const CLI::Option* option = called.empty() ? nullptr : option_called(*called.front(), flag);
      text = conversion_error(option, flag, value);
    }
  }
  if (!called.empty()) text = range_error(*called.front(), text);
  while (text.ends_with('\n')) text.pop_back();
  return fmt::format("{}: {}", command, text);
}

}  // namespace millrace
