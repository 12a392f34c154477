// millrace completion: prints a bash, zsh or fish completion script generated from the command line's declaration.
#include <fmt/format.h>

#include <map>

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

// How bash completes a value; "": not at all.
std::string bash_action(const DeclaredOption& option) {
  if (option.model) return "_millrace_models";
  if (!option.choices.empty())
    return fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$cur\"))", joined_names(option.choices, " "));
  return option.file ? "_millrace_files" : ":";
}

// Bash makes three words of family=name: the members of a family complete the last one.
std::string bash_members() {
  std::map<std::string, std::string> members;
  for (const TechniqueInfo& info : listed_techniques()) members[info.family] += info.name + " ";
  std::string out;
  for (const auto& [family, names] : members)
    out += fmt::format("      {}) COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return ;;\n", family, names);
  return out;
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
      values += fmt::format("    {}) {}; return ;;\n", patterns, bash_action(option));
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
_millrace_models() {{
  compopt -o filenames 2>/dev/null
  COMPREPLY=($(compgen -W "$(millrace list --names 2>/dev/null)" -- "$cur") $(compgen -f -- "$cur"))
}}
_millrace() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command='' options='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ -z $command ]]; then
      case " {0} " in *" ${{COMP_WORDS[i]}} "*) command=${{COMP_WORDS[i]}} ;; esac
    else
      case "|{4}|" in *"|$command ${{COMP_WORDS[i]}}|"*) command="$command ${{COMP_WORDS[i]}}"; break ;; esac
    fi
  done
  [[ $cur == '=' ]] && cur=''
  if [[ $prev == '=' || ${{COMP_WORDS[COMP_CWORD]}} == '=' ]]; then
    local family=${{COMP_WORDS[COMP_CWORD-1]}}
    [[ $prev == '=' ]] && family=${{COMP_WORDS[COMP_CWORD-2]}}
    case "$family" in
{5}    esac
  fi
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
                     names, values, options, actions, second_words(commands), bash_members());
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
std::string zsh_action(const DeclaredOption& option) {
  if (option.model) return "_millrace_models";
  if (option.file) return "_files";
  return option.choices.empty() ? " " : "(" + joined_names(option.choices, " ") + ")";
}

std::string zsh_case(const DeclaredCommand& command) {
  std::string arguments;
  for (const DeclaredOption& option : command.options)
    for (const std::string& name : option.names) {
      arguments += fmt::format("        '*{}[{}]", name, zsh_text(option.help));
      if (!option.value.empty()) arguments += fmt::format(":{}:{}", zsh_text(option.value), zsh_action(option));
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
_millrace_models() {{
  compadd -- ${{(f)"$(millrace list --names 2>/dev/null)"}}
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

std::string fish_option(const DeclaredOption& option, const std::string& condition) {
  std::string out = fmt::format("complete -c millrace -n '{}'", condition);
  for (const std::string& name : option.names)
    out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!option.value.empty()) {
    out += option.file || option.model ? " -r -F" : " -x";
    if (option.model) out += " -a '(millrace list --names 2>/dev/null)'";
    if (!option.choices.empty()) out += fmt::format(" -a '{}'", joined_names(option.choices, " "));
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
      out += fmt::format("complete -c millrace -n '{}' -F -a '(millrace list --names 2>/dev/null)'\n", condition);
    else
      out += fmt::format("complete -c millrace -n '{}' -F\n", condition);
    for (const DeclaredOption& option : command.options) out += fish_option(option, condition);
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
