// millrace train-lab: trains the models that answer the exercises of `millrace lab`, on the CPU alone.
#include <fmt/format.h>

#include <memory>

#include "command.h"
#include "learn/lab_mixture.h"
#include "learn/lab_trainer.h"
#include "picture_flags.h"
#include "train_picture.h"

namespace millrace {
namespace {

constexpr const char* kTrainLabExamples =
    R"(Exercises of the train split are generated as they are needed. The folder OUT receives vocabulary.txt, checkpoint.bin,
loss.csv and accuracy.csv (held-out accuracy: greedy decoding gives exactly the answer).

Examples:
  millrace train-lab --out run/ --stories stories/                     the main model, 4 M parameters
  millrace train-lab --out run/ --stories stories/ --resume            continue, with the same options
  millrace train-lab --out run/ --stories stories/ --resume --decay-from 90000000 --decay-tokens 10000000
                                                                       let the rates fall at the end
  millrace train-lab --out draft/ --size lab-draft --vocabulary run/vocabulary.txt --stories stories/
  millrace train-lab --out long/ --size stories-long --stories stories/ --first-length 4000 --last-length 40000
                                                                       rows of stories up to a context of 8,192
  millrace train-lab --out run/ --export run/millrace-lab.gguf         write the checkpoint as GGUF; no training
  millrace train-lab --out run/ --export run/millrace-lab.gguf --picture run.svg
                                                                       draw the curves of its training, too
  millrace train-lab --out tuned/ --start run/checkpoint.bin ...       begin with the weights of another run
  millrace train-lab --out tuned/ --from millrace-lab.gguf ...         begin with those of an exported model)";

struct TrainLabFlags {
  LabTrainOptions run;
  std::string size = "lab", gguf, name = "millrace-lab", format = "f16";
  int64_t vocab = 2048;
  PictureFlags picture;
};

Result<void> draw_run(const TrainLabFlags& flags) {
  if (!flags.picture.wanted()) return {};
  MILLRACE_TRY(const Chart chart, training_chart(flags.run.out, flags.name));
  return flags.picture.write(chart);
}

Result<int> run_train_lab(TrainLabFlags& flags) {
  MILLRACE_TRY_VOID(flags.picture.check());
  if (!flags.gguf.empty()) {
    MILLRACE_TRY(const LabModel model, load_lab_checkpoint(flags.run.out + "/checkpoint.bin"));
    MILLRACE_TRY(const TokenizerSpec spec, read_lab_vocabulary(flags.run.out + "/vocabulary.txt"));
    MILLRACE_TRY_VOID(export_lab_gguf(model, spec, flags.name, flags.format, flags.gguf));
    fmt::print("{}: {} parameters\n", flags.gguf, trained_parameters(model.spec()));
    MILLRACE_TRY_VOID(draw_run(flags));
    return 0;
  }
  MILLRACE_TRY(flags.run.spec, lab_spec(flags.size));
  flags.run.spec.vocab = flags.vocab;
  flags.run.only_stories = lab_only_stories(flags.size);
  MILLRACE_TRY(const LabTrainReport report, train_lab(flags.run));
  fmt::print("{} updates, {} tokens, {:.1f} min, loss {:.4f}\n", report.steps, report.tokens, report.elapsed_s / 60,
             report.loss);
  MILLRACE_TRY_VOID(draw_run(flags));
  return 0;
}

void add_lab_schedule_flags(CLI::App* command, LabTrainOptions& run) {
  const CLI::Range tokens(int64_t{0}, int64_t{1} << 50);
  command->add_option("--tokens", run.tokens, "Tokens of the whole run")->check(tokens)->capture_default_str();
  command->add_option("--batch-tokens", run.batch_tokens, "Tokens of an update, at least")
      ->check(CLI::Range(64, 1 << 20))
      ->capture_default_str();
  command->add_option("--first-length", run.first_length, "Longest prompts at the start, in characters")
      ->check(CLI::Range(200, 1 << 20))
      ->capture_default_str();
  command->add_option("--last-length", run.last_length, "Longest prompts at the end, in characters")
      ->check(CLI::Range(200, 1 << 20))
      ->capture_default_str();
  command->add_option("--length-doubling", run.length_doubling, "Tokens after which the longest prompts are doubled")
      ->check(CLI::Range(int64_t{1000}, int64_t{1} << 50))
      ->capture_default_str();
  command->add_option("--decay-from", run.decay_from, "Tokens after which the rates fall")->check(tokens);
  command->add_option("--decay-tokens", run.decay_tokens, "Tokens within which they fall to zero; 0: they don't")
      ->check(tokens);
  command->add_option("--warmup", run.warmup, "Updates until the full rates")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--muon-rate", run.rates.muon, "Rate of Muon")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--adam-rate", run.rates.adam, "Rate of AdamW")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--weight-decay", run.rates.decay, "Weight decay of matrices")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
}

}  // namespace

void add_train_lab_command(CLI::App& app) {
  auto flags = std::make_shared<TrainLabFlags>();
  CLI::App* command = add_command(app, "train-lab", "Train a small model on the exercises of millrace lab",
                                  kTrainLabExamples, [flags] { return run_train_lab(*flags); });
  LabTrainOptions& run = flags->run;
  command->add_option("--out", run.out, "Folder of the run")->required();
  command->add_option("--size", flags->size, "lab, lab-draft, lab-relu, lab-mha, lab-experts or stories-long")
      ->capture_default_str();
  command->add_option("--vocabulary-size", flags->vocab, "Tokens of the vocabulary, a multiple of 32")
      ->check(CLI::Range(512, 1 << 16))
      ->capture_default_str();
  command->add_option("--stories", run.stories, "Folder of *.txt or *.txt.xz files with stories; default: none");
  command->add_option("--vocabulary", run.vocabulary, "Use the vocabulary.txt of another run instead of learning one");
  command->add_option("--start", run.start, "Begin with the weights of this checkpoint.bin");
  command->add_option("--from", run.from, "Begin with weights and vocabulary of this GGUF file, an exported lab model");
  command->add_flag("--resume", run.resume, "Continue from OUT/checkpoint.bin");
  command->add_option("--export", flags->gguf, "Write OUT/checkpoint.bin as this GGUF file; no training");
  flags->picture.add_to(command, "the loss and the accuracy of the run");
  command->add_option("--name", flags->name, "--export and --picture: the model's name")->capture_default_str();
  command->add_option("--format", flags->format, "--export: number format of the matrices")->capture_default_str();
  command->add_option("--log-every", run.log_every, "Updates between lines of the log")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--evaluate-every", run.evaluate_every, "Updates between evaluations")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  command->add_option("--items", run.items, "Items of each task and length in an evaluation")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_option("--save-seconds", run.save_seconds, "Seconds between checkpoints")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  command->add_option("--minutes", run.stop_after_minutes, "Stop after this many minutes; 0: at --tokens")
      ->check(CLI::Range(0.0, 1e6));
  command->add_option("--threads", run.threads, "Threads")->check(CLI::Range(1, 256))->capture_default_str();
  command->add_flag("--no-bf16", run.exact, "Multiply in F32, not in bfloat16");
  command->add_option("--seed", run.seed, "Seed of weights and examples")->capture_default_str();
  add_lab_schedule_flags(command, run);
}

}  // namespace millrace
