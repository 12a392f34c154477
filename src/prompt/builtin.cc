// The built-in prompt compressors, and how one is made from text.
#include "base/choose.h"
#include "prompt/compression_task.h"
#include "prompt/compressors/factories.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

const OptionSpec kTextsAre = {"unit", Type::text, "sentence", 0, 0, "what is kept as a whole: sentence or part"};
const OptionSpec kCoarse = {
    "coarse", Type::number, "2",
    1,        100,          "documents are chosen until they have this many times the tokens that may remain"};
const OptionSpec kSegment = {"segment", Type::integer, "100", 1, 256, "tokens that are pruned at a time"};

const OptionSpec kParse = {
    "parse", Type::text,
    "",      0,
    0,       "file of parses in Penn brackets, for sentences whose words it has; default: rules for English"};
const OptionSpec kCost = {"cost",
                          Type::text,
                          "information",
                          0,
                          0,
                          "what a constituent is worth, a token: information (its own), or question (by how much its "
                          "removal raises that of the question; a pass for each)"};

// `center` is on for hidden states of the model that answers.
OptionSpec center_option() {
  return {"center", Type::boolean, "true", 0, 0, "subtract the mean of the texts' vectors before they are compared"};
}

}  // namespace

const Registry<PromptCompressorFactory>& prompt_compressors() {
  static const Registry<PromptCompressorFactory> registry(
      {.loss = Loss::lossy, .test = "src/prompt/selective_context_test.cc", .proof = "docs/prompt-compression.md"},
      {
          {{"prompt", "random", "drops words at random; the baseline of the family; answers change", "",
            compression_options(
                "0.5", false, false,
                {{"unit", Type::text, "word", 0, 0, "what is dropped as a whole: token, word or sentence"},
                 {"seed", Type::integer, "0", 0, 1e9, "seed of the draws"}}),
            Loss::lossy, "src/prompt/baselines_test.cc"},
           make_random_units},
          {{"prompt", "truncate", "cuts off the beginning, the middle or the end of the text; answers change", "",
            compression_options("0.5", false, false,
                                {{"cut", Type::text, "start", 0, 0, "what is cut off: start, middle or end"}}),
            Loss::lossy, "src/prompt/baselines_test.cc"},
           make_truncate},
          {{"prompt",
            "selective_context",
            "drops the words that the model could have predicted best; answers change",
            "Li et al., 2023, Compressing Context to Enhance Inference Efficiency of Large Language Models",
            {{"ratio", Type::number, "0.5", 0, 0.99,
              "share of the units to drop, those with the least self-information"},
             {"unit", Type::text, "word", 0, 0, "what is dropped as a whole: token, word or sentence"},
             {"keep_last", Type::integer, "32", 0, 1e9, "tokens at the end that are never dropped"},
             {"tokens", Type::integer, "0", 0, 1e9, "most tokens that may remain; 0: no limit"},
             {"rate", Type::number, "0", 0, 1, "share of the tokens that remains, in place of ratio; 0: by ratio"},
             {"scope", Type::text, "all", 0, 0,
              "what may be dropped: documents (the last message), history, tools, or all of what users and tools "
              "wrote"},
             {"model", Type::text, "", 0, 0,
              "file of the model that scores the text; default: the model that answers"}}},
           make_selective_context},
          {{"prompt", "llmlingua",
            "keeps the documents that are hardest to predict, and of these the tokens that say most; answers change",
            "Jiang et al., 2023, LLMLingua: Compressing Prompts for Accelerated Inference of Large Language Models",
            compression_options("0.5", true, true, {kCoarse, kSegment}), Loss::lossy, "src/prompt/llmlingua_test.cc"},
           make_llmlingua},
          {{"prompt", "longllmlingua",
            "keeps the documents that make the question likely, the best first, and their tokens that the question "
            "makes "
            "likelier; answers change",
            "Jiang et al., 2024, LongLLMLingua: Accelerating and Enhancing LLMs in Long Context Scenarios via Prompt "
            "Compression",
            compression_options(
                "0.5", true, true,
                {kCoarse,
                 kSegment,
                 {"dynamic", Type::number, "0.3", 0, 1, "how much more of the best document remains than on average"},
                 {"contrast", Type::boolean, "true", 0, 0,
                  "keep the tokens that the question makes likelier, instead of those that say most"},
                 {"reorder", Type::boolean, "true", 0, 0, "put the best document first"},
                 {"restrict", Type::boolean, "true", 0, 0,
                  "rank documents by the question and the paper's restrictive sentence after it"},
                 {"recover", Type::boolean, "false", 0, 0,
                  "replace what the answer quotes by the original text; only `millrace compare` does"}}),
            Loss::lossy, "src/prompt/longllmlingua_test.cc"},
           make_longllmlingua},
          {{"prompt", "recomp_extractive",
            "keeps the sentences whose embeddings are nearest to the question's; answers change",
            "Xu et al., 2023, RECOMP: Improving Retrieval-Augmented LMs with Compression and Selective Augmentation",
            compression_options("0.5", true, true, {kTextsAre, center_option()}), Loss::lossy,
            "src/prompt/recomp_extractive_test.cc"},
           make_recomp_extractive},
          {{"prompt", "recomp_abstractive",
            "puts the summary of another model in place of the documents; answers change",
            "Xu et al., 2023, RECOMP: Improving Retrieval-Augmented LMs with Compression and Selective Augmentation",
            compression_options("0.25", true, true,
                                {{"instruction", Type::text, "Summarize what these documents say about the question.",
                                  0, 0, "what the summarizer is told between documents and question; may be empty"}}),
            Loss::lossy, "src/prompt/recomp_abstractive_test.cc"},
           make_recomp_abstractive},
          {{"prompt", "dynaicl", "keeps as many examples as the model needs to predict the next ones; answers change",
            "Zhou et al., 2023, Efficient Prompting via Dynamic In-Context Learning",
            compression_options(
                "1", true, true,
                {{"least", Type::integer, "4", 0, 1e9, "examples that always remain, within the budget"},
                 {"window", Type::integer, "4", 1, 1e9, "examples over which surprise is averaged"},
                 {"tolerance", Type::number, "0.1", 0, 100,
                  "how much above its end the surprise may be, as a share of it"}}),
            Loss::lossy, "src/prompt/dynaicl_test.cc"},
           make_dynaicl},
          {{"prompt", "semantic_compression",
            "groups sentences by topic and keeps the central ones of each; answers change",
            "Fei et al., 2023, Extending Context Window of Large Language Models via Semantic Compression",
            compression_options("0.5", true, true, {kTextsAre, center_option()}), Loss::lossy,
            "src/prompt/semantic_compression_test.cc"},
           make_semantic_compression},
          {{"prompt", "cot_influx", "chooses whole examples, then drops their least valuable words; answers change",
            "Huang et al., 2023, Fewer is More: Boosting LLM Reasoning with Reinforced Context Pruning",
            compression_options("0.5", true, true,
                                {kCoarse,
                                 {"policy", Type::text, "", 0, 0,
                                  "safetensors file of trained networks that choose examples and tokens; default: by "
                                  "information"}}),
            Loss::lossy, "src/prompt/cot_influx_test.cc"},
           make_cot_influx},
          {{"prompt", "stdc",
            "drops constituents of sentences: the modifiers and sentences that say least; answers change",
            "Yin et al., 2023, Did You Read the Instructions? Rethinking the Effectiveness of Task Definitions in "
            "Instruction Learning",
            compression_options("0.5", true, true, {kParse, kCost}), Loss::lossy, "src/prompt/stdc_test.cc"},
           make_stdc},
          {{"prompt", "pcrl", "keeps the tokens that a trained policy keeps, by their hidden states; answers change",
            "Jung and Kim, 2023, Discrete Prompt Compression with Reinforcement Learning",
            compression_options(
                "1", true, true,
                {{"policy", Type::text, "", 0, 0, "safetensors file of the trained policy; needed"},
                 {"threshold", Type::number, "0.5", 0, 1, "a token below this probability of being kept is dropped"}}),
            Loss::lossy, "src/prompt/pcrl_test.cc"},
           make_pcrl},
      });
  return registry;
}

Result<std::unique_ptr<PromptCompressor>> make_prompt_compressor(std::string_view text) {
  MILLRACE_TRY(const auto chosen, choose_member("prompt", prompt_compressors(), text));
  auto made = chosen.member(chosen.options);
  if (!made.ok()) return Error::user(chosen.label + ": " + made.error().message);
  return made;
}

}  // namespace millrace
