// millrace train: trains the built-in model, from text to GGUF. Only in builds with -DMILLRACE_TRAIN=ON (libtorch).
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "command.h"
#include "picture/picture.h"
#include "train/finish.h"

namespace millrace {
namespace {

constexpr const char* kTrainExamples =
    R"(DATA is a folder of *.txt or *.txt.xz files with stories separated by lines <|endoftext|>. One story in 32 is held out.
The folder OUT receives vocabulary.txt, checkpoint.pt, best.pt (the weights with the best held-out loss), loss.csv,
loss.png, report.txt and NAME.gguf.

Examples:
  millrace train --data stories/ --out run/                     the main model, about 5.5 M parameters
  millrace train --data stories/ --out run/ --resume            continue an interrupted run
  millrace train --data stories/ --out run/ --minutes 90        finish the learning rate schedule in 90 minutes
  millrace train --data stories/ --out draft/ --size draft --vocabulary run/vocabulary.txt
                                                                the small draft model for speculative decoding
  millrace train --data stories/ --out run/ --export-only       recreate GGUF, plot and report from best.pt
  millrace run -m run/millrace-stories-6m.gguf -p "Once upon a time")";

struct TrainFlags {
  TrainOptions run;
  std::string size = "main", name, optimizer = "muon";
  double dropout = -1, temperature = 0.8;
  int samples = 3;
  bool export_only = false, no_bf16 = false;
};

std::string default_name(const TrainFlags& flags) {
  if (!flags.name.empty()) return flags.name;
  return flags.size == "draft" ? "millrace-stories-1m-draft" : "millrace-stories-6m";
}

Result<int> run_train(TrainFlags flags) {
  MILLRACE_TRY_VOID(check_drawing("train: " + flags.run.out + "/loss.png"));
  MILLRACE_TRY(flags.run.model, story_model_config(flags.size));
  if (flags.dropout >= 0) flags.run.model.dropout = flags.dropout;
  flags.run.model.bf16 = !flags.no_bf16;
  flags.run.optimizer.muon = flags.optimizer == "muon";
  if (!flags.export_only) {
    MILLRACE_TRY(TrainReport trained, train_stories(flags.run));
    fmt::print("{} steps, {} tokens ({:.2f} epochs), {:.1f} min, best held-out loss {:.4f}\n", trained.steps,
               trained.train_tokens,
               static_cast<double>(trained.train_tokens) / static_cast<double>(trained.corpus_tokens),
               trained.elapsed_s / 60, trained.held_out_loss);
  }
  MILLRACE_TRY(FinishReport report, finish_stories({flags.run, default_name(flags), flags.samples, flags.temperature}));
  fmt::print("{}: {} parameters, held-out {:.4f} bits per byte ({:.4f} nats per token)\n", report.gguf,
             report.parameters, report.bits_per_byte, report.nats_per_token);
  for (const std::string& story : report.stories) fmt::print("\n{}\n", story);
  return 0;
}

void add_training_flags(CLI::App* command, TrainFlags& flags) {
  TrainOptions& run = flags.run;
  command->add_option("--steps", run.steps, "Number of updates")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  command->add_option("--minutes", run.minutes, "Stop after this many minutes even if steps are left; 0: no limit")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--batch-tokens", run.batch_tokens, "Tokens per update")
      ->check(CLI::Range(16, 1 << 20))
      ->capture_default_str();
  command->add_option("--window", run.window, "Tokens per row, except long rows")
      ->check(CLI::Range(8, 1024))
      ->capture_default_str();
  command->add_option("--long-every", run.long_every, "Use rows of the full context every N updates")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  command->add_option("--long-share", run.long_share, "Fraction of the run, at its end, with rows of the full context")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--warmup", run.warmup, "Updates until the full learning rate")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--optimizer", flags.optimizer, "Optimizer of the blocks' matrices: muon or adamw")
      ->check(CLI::IsMember({"muon", "adamw"}))
      ->capture_default_str();
  command->add_option("--muon-rate", run.optimizer.muon_rate, "Learning rate of Muon")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--adam-rate", run.optimizer.adam_rate, "Learning rate of AdamW")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--weight-decay", run.optimizer.weight_decay, "Weight decay of matrices")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  command->add_option("--dropout", flags.dropout, "Dropout, 0 to 0.9 (default: main 0.1, draft 0)")
      ->check(CLI::Range(0.0, 0.9));
  command->add_flag("--no-bf16", flags.no_bf16, "Multiply in F32 even if the processor supports bfloat16");
}

}  // namespace

void add_train_command(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* command = add_command(app, "train", "Train the built-in model from a folder of stories", kTrainExamples,
                                  [flags] { return run_train(*flags); });
  TrainOptions& run = flags->run;
  command->add_option("--data", run.data, "Folder of *.txt or *.txt.xz files")->required();
  command->add_option("--out", run.out, "Output folder")->required();
  command->add_option("--size", flags->size, "Model size: main or draft")
      ->check(CLI::IsMember({"main", "draft"}))
      ->capture_default_str();
  command->add_option("--name", flags->name, "Name of the model and its file");
  command->add_option("--vocabulary", run.vocabulary, "Use the vocabulary.txt of another run instead of learning one");
  command->add_flag("--resume", run.resume, "Continue from OUT/checkpoint.pt");
  command->add_flag("--export-only", flags->export_only, "Do not train; write GGUF, plot and report from OUT/best.pt");
  command->add_option("--evaluate-every", run.evaluate_every, "Updates between evaluations of the held-out loss")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--save-every", run.save_every, "Updates between checkpoints")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--threads", run.threads, "Threads of libtorch")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--seed", run.seed, "Seed of weights, data order and dropout")->capture_default_str();
  command->add_option("--samples", flags->samples, "Stories to generate at the end")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  command->add_option("--temp", flags->temperature, "Sampling temperature of these stories")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  add_training_flags(command, *flags);
}

}  // namespace millrace
