// millrace completion: prints a bash, zsh or fish completion script generated from the command line's declaration.
#include <fmt/format.h>

#include "command.h"
#include "declaration.h"

namespace millrace {
namespace {

constexpr const char* kCompletionExamples = R"(Examples:
  millrace completion bash > ~/.local/share/bash-completion/completions/millrace
  millrace completion zsh > ~/.zfunc/_millrace             needs  fpath+=(~/.zfunc)  before compinit in ~/.zshrc
  millrace completion fish > ~/.config/fish/completions/millrace.fish)";

std::string joined_names(const std::vector<std::string>& names, const char* between) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : between) + name;
  return out;
}

// "trace stats|trace cache": the commands of commands.
std::string second_words(const std::vector<DeclaredCommand>& commands) {
  std::string out;
  for (const DeclaredCommand& command : commands)
    if (command.name.find(' ') != std::string::npos) out += (out.empty() ? "" : "|") + command.name;
  return out;
}

// How bash completes a value.
std::string bash_action(const DeclaredOption& option, const std::string& command) {
  if (option.model) return "_millrace_models";
  if (option.technique) return "_millrace_words use " + command;
  if (!option.family.empty()) return "_millrace_words member " + option.family;
  if (!option.choices.empty())
    return fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$cur\"))", joined_names(option.choices, " "));
  return option.file ? "_millrace_files" : ":";
}

std::string bash_script(const std::vector<DeclaredCommand>& commands) {
  std::string names, options, values, actions;
  for (const DeclaredCommand& command : commands) {
    if (!command.name.empty() && command.name.find(' ') == std::string::npos)
      names += (names.empty() ? "" : " ") + command.name;
    std::string words;
    for (const DeclaredOption& option : command.options) {
      words += (words.empty() ? "" : " ") + joined_names(option.names, " ");
      if (option.value.empty()) continue;
      std::string patterns;
      for (const std::string& name : option.names)
        patterns += fmt::format("{}'{}:{}'", patterns.empty() ? "" : "|", command.name, name);
      values += fmt::format("    {}) {}; return ;;\n", patterns, bash_action(option, command.name));
    }
    options += fmt::format("    '{}') options='{}' ;;\n", command.name, words);
    if (!command.actions.empty())
      actions += fmt::format("    '{}') COMPREPLY=($(compgen -W '{}' -- \"$cur\")) ;;\n", command.name,
                             joined_names(command.actions, " "));
    else if (command.takes_model)
      actions += fmt::format("    '{}') _millrace_models ;;\n", command.name);
  }
  return fmt::format(R"script(# bash completion for millrace; printed by `millrace completion bash`.
_millrace_files() {{
  compopt -o filenames 2>/dev/null
  COMPREPLY=($(compgen -f -- "$cur"))
}}
_millrace_words() {{
  mapfile -t COMPREPLY < <("$program" completion --words "$@" "$cur" 2>/dev/null)
}}
_millrace_models() {{
  _millrace_words models
  local files=($(compgen -f -- "$cur"))
  (( ${{#files[@]}} )) && compopt -o filenames 2>/dev/null
  COMPREPLY+=("${{files[@]}}")
}}
_millrace() {{
  # Bash divides words at = and :, which are put together again: `word` ends in `last`.
  local last=${{COMP_WORDS[COMP_CWORD]}} word='' first=$COMP_CWORD
  while :; do
    word=${{COMP_WORDS[first]}}$word
    (( first > 1 )) || break
    [[ ${{COMP_WORDS[first]}} =~ ^[=:]+$ || ${{COMP_WORDS[first-1]}} =~ ^[=:]+$ ]] || break
    (( --first ))
  done
  [[ $last =~ ^[=:]+$ ]] && last=''
  local cur=$word prev=${{COMP_WORDS[first-1]}} flag=''
  if [[ $cur == --*=* ]]; then
    prev=${{cur%%=*}} flag=${{cur%%=*}}= cur=${{cur#*=}}
  fi
  if [[ $cur == [\"\']* ]]; then
    flag+=${{cur:0:1}} cur=${{cur:1}}
  fi
  local program=${{COMP_WORDS[0]/#\~/$HOME}}
  type -P -- "$program" >/dev/null || program=millrace
  _millrace_complete
  local before=${{word%"$last"}}
  COMPREPLY=("${{COMPREPLY[@]/#/$flag}}")
  COMPREPLY=("${{COMPREPLY[@]#"$before"}}")
  [[ ${{#COMPREPLY[@]}} == 1 && ${{COMPREPLY[0]}} == *[=:] ]] && compopt -o nospace 2>/dev/null
  [[ ${{#COMPREPLY[@]}} == 1 && -z ${{COMPREPLY[0]}} ]] && COMPREPLY=()
  return 0
}}
_millrace_complete() {{
  local command='' options='' i
  COMPREPLY=()
  for ((i = 1; i < first; ++i)); do
    if [[ -z $command ]]; then
      case " {0} " in *" ${{COMP_WORDS[i]}} "*) command=${{COMP_WORDS[i]}} ;; esac
    else
      case "|{4}|" in *"|$command ${{COMP_WORDS[i]}}|"*) command="$command ${{COMP_WORDS[i]}}"; break ;; esac
    fi
  done
  case "$command:$prev" in
{1}  esac
  case "$command" in
{2}  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$cur"))
    return
  fi
  if [[ -z $command ]]; then
    COMPREPLY=($(compgen -W '{0}' -- "$cur"))
    return
  fi
  case "$command" in
{3}    *) _millrace_files ;;
  esac
}}
complete -F _millrace millrace
)script",
                     names, values, options, actions, second_words(commands));
}

// Escapes text inside '...' and the [ ] and : of _arguments.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else if (c == '[' || c == ']' || c == ':' || c == '\\')
      out += std::string("\\") + c;
    else
      out += c == '\n' ? ' ' : c;
  }
  return out;
}

// How zsh completes a value.
std::string zsh_action(const DeclaredOption& option, const std::string& command) {
  if (option.model) return "_millrace_models";
  if (option.technique) return "{_millrace_words use " + command + "}";
  if (!option.family.empty()) return "{_millrace_words member " + option.family + "}";
  if (option.file) return "_files";
  return option.choices.empty() ? " " : "(" + joined_names(option.choices, " ") + ")";
}

std::string zsh_case(const DeclaredCommand& command) {
  std::string arguments;
  for (const DeclaredOption& option : command.options)
    for (const std::string& name : option.names) {
      arguments += fmt::format("        '*{}[{}]", name, zsh_text(option.help));
      if (!option.value.empty())
        arguments += fmt::format(":{}:{}", zsh_text(option.value), zsh_action(option, command.name));
      arguments += "' \\\n";
    }
  if (!command.actions.empty())
    arguments += fmt::format("        '1:action:({})' \\\n", joined_names(command.actions, " "));
  const char* rest = command.takes_model ? "*:model:_millrace_models" : "*:file:_files";
  return fmt::format("    '{}')\n      _arguments \\\n{}        '{}'\n      ;;\n", command.name, arguments, rest);
}

std::string zsh_script(const std::vector<DeclaredCommand>& commands) {
  std::string list, cases;
  for (const DeclaredCommand& command : commands) {
    if (command.name.empty()) continue;
    if (command.name.find(' ') == std::string::npos)
      list += fmt::format("    '{}:{}'\n", command.name, zsh_text(command.summary));
    cases += zsh_case(command);
  }
  return fmt::format(R"script(#compdef millrace
# zsh completion for millrace; printed by `millrace completion zsh`.
_millrace_words() {{
  compadd -S '' -- ${{(f)"$(millrace completion --words "$@" "$PREFIX" 2>/dev/null)"}}
}}
_millrace_models() {{
  compadd -- ${{(f)"$(millrace completion --words models "$PREFIX" 2>/dev/null)"}}
  _files
}}
_millrace() {{
  local -a commands
  commands=(
{0}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  if (( CURRENT > 2 )) && [[ "|{2}|" == *"|$command $words[2]|"* ]]; then
    command="$command $words[2]"
    shift words
    (( CURRENT-- ))
  fi
  case $command in
{1}  esac
}}
if [ "$funcstack[1]" = "_millrace" ]; then
  _millrace "$@"
else
  compdef _millrace millrace
fi
)script",
                     list, cases, second_words(commands));
}

// Text inside '...' of fish.
std::string fish_text(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, text.find_first_of(";\n")))
    out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out;
}

// When fish offers what belongs to a command.
std::string fish_condition(const std::string& name) {
  const size_t space = name.find(' ');
  if (space == std::string::npos) return "__fish_seen_subcommand_from " + name;
  return fmt::format("__fish_seen_subcommand_from {}; and __fish_seen_subcommand_from {}", name.substr(0, space),
                     name.substr(space + 1));
}

// The command that fish runs for words of the program.
std::string fish_words(const std::string& kind) {
  return fmt::format(" -a '(millrace completion --words {} (commandline -ct) 2>/dev/null)'", kind);
}

std::string fish_option(const DeclaredOption& option, const std::string& command, const std::string& condition) {
  std::string out = fmt::format("complete -c millrace -n '{}'", condition);
  for (const std::string& name : option.names)
    out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!option.value.empty()) {
    out += option.file || option.model ? " -r -F" : " -x";
    if (option.model)
      out += fish_words("models");
    else if (option.technique)
      out += fish_words("use " + command);
    else if (!option.family.empty())
      out += fish_words("member " + option.family);
    else if (!option.choices.empty())
      out += fmt::format(" -a '{}'", joined_names(option.choices, " "));
  }
  return out + fmt::format(" -d '{}'\n", fish_text(option.help));
}

std::string fish_script(const std::vector<DeclaredCommand>& commands) {
  std::string out = "# fish completion for millrace; printed by `millrace completion fish`.\ncomplete -c millrace -f\n";
  for (const DeclaredCommand& command : commands) {
    if (command.name.empty()) continue;
    if (command.name.find(' ') == std::string::npos)
      out += fmt::format("complete -c millrace -n __fish_use_subcommand -a {} -d '{}'\n", command.name,
                         fish_text(command.summary));
    const std::string condition = fish_condition(command.name);
    if (!command.actions.empty())
      out += fmt::format("complete -c millrace -n '{}' -a '{}'\n", condition, joined_names(command.actions, " "));
    else if (command.takes_model)
      out += fmt::format("complete -c millrace -n '{}' -F{}\n", condition, fish_words("models"));
    else
      out += fmt::format("complete -c millrace -n '{}' -F\n", condition);
    for (const DeclaredOption& option : command.options) out += fish_option(option, command.name, condition);
  }
  return out;
}

}  // namespace

void add_completion_command(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = add_command(app, "completion", "Print a shell completion script", kCompletionExamples,
                                  [=, &app]() -> Result<int> {
                                    const auto commands = declared_commands(app);
                                    fmt::print("{}", *shell == "zsh"    ? zsh_script(commands)
                                                     : *shell == "fish" ? fish_script(commands)
                                                                        : bash_script(commands));
                                    return 0;
                                  });
  command->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

}  // namespace millrace
