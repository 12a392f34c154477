// A subcommand is one small file that declares its flags and a callback, and one line in main.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/result.h"

namespace millrace {

// Exit codes in addition to those of errors (exit_code() of millrace/result.h): the network, and a comparison that
// found different answers.
inline constexpr int kNetworkExit = 6;  // exit code of base/network_error.h
inline constexpr int kAnswersDiffer = 7;

// Adds a subcommand whose `run` returns an exit code or an error; errors are printed as "millrace: ..." on stderr and
// become the documented exit codes (see exit_code in millrace/result.h).
CLI::App* add_command(CLI::App& app, const char* name, const char* summary, const char* examples,
                      std::function<Result<int>()> run);

void add_compress_command(CLI::App& app);
void add_convert_command(CLI::App& app);
void add_run_command(CLI::App& app);
void add_program_command(CLI::App& app);
void add_cascade_command(CLI::App& app);
void add_chat_command(CLI::App& app);
void add_serve_command(CLI::App& app);
void add_pull_command(CLI::App& app);
void add_stored_commands(CLI::App& app);   // list, show, create, cp, rm
void add_running_commands(CLI::App& app);  // ps, stop
void add_doctor_command(CLI::App& app);
void add_help_commands(CLI::App& app);  // help, version
void add_inspect_command(CLI::App& app);
void add_offload_command(CLI::App& app);
void add_models_command(CLI::App& app);
void add_tokenize_command(CLI::App& app);
void add_datastore_command(CLI::App& app);
void add_template_command(CLI::App& app);
void add_techniques_command(CLI::App& app);
void add_train_command(CLI::App& app);  // only if MILLRACE_TRAIN is defined
void add_compare_command(CLI::App& app);
void add_lab_command(CLI::App& app);
void add_train_lab_command(CLI::App& app);
void add_embed_command(CLI::App& app);
void add_index_command(CLI::App& app);  // add, search, rm, stats
void add_batch_command(CLI::App& app);
void add_perplexity_command(CLI::App& app);
void add_draft_search_command(CLI::App& app);
void add_window_search_command(CLI::App& app);
void add_pattern_search_command(CLI::App& app);
void add_budget_search_command(CLI::App& app);
void add_document_search_command(CLI::App& app);
void add_kv_levels_command(CLI::App& app);
void add_npu_scales_command(CLI::App& app);
void add_npu_plan_command(CLI::App& app);
void add_centroids_command(CLI::App& app);
void add_offload_train_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_trace_command(CLI::App& app);
void add_plot_command(CLI::App& app);
void add_replay_command(CLI::App& app);
void add_simulate_command(CLI::App& app);
void add_exactness_command(CLI::App& app);
void add_worker_command(CLI::App& app);   // attention-worker
void add_cluster_command(CLI::App& app);  // up, route, status, drain

}  // namespace millrace
