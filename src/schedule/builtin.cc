// The built-in scheduling policies and answer length predictors.
#include "schedule/orders.h"
#include "schedule/policies/factories.h"
#include "schedule/predictors/factories.h"

namespace millrace {

namespace {

using Type = OptionSpec::Type;

OptionSpec preempt_option() {
  return {"preempt", Type::boolean, "true", 0, 1, "a waiting stream may preempt a running one that ranks below it"};
}

}  // namespace

const Registry<PolicyFactory>& policies() {
  static const Registry<PolicyFactory> registry(
      {.loss = Loss::lossless, .test = "tests/properties/engine_schedule_test.cc"},
      {
          {{"policy",
            "fcfs",
            "first come, first served; decodes first, prompts in chunks under one token budget",
            "Yu et al., 2022, Orca: A Distributed Serving System for Transformer-Based Generative Models; Agrawal et "
            "al., 2023, SARATHI: Efficient LLM Inference by Piggybacking Decodes with Chunked Prefills",
            {reserve_option("whole")}},
           make_fcfs},
          {{"policy",
            "prefill_first",
            "whole prompts before any decode, as engines did before chunked prefill",
            "Kwon et al., 2023, Efficient Memory Management for Large Language Model Serving with PagedAttention",
            {reserve_option("prompt")}},
           make_prefill_first},
          {{"policy",
            "decode_first",
            "dynamic split-fuse: every step runs the same number of tokens",
            "Holmes et al., 2024, DeepSpeed-FastGen: High-throughput Text Generation for LLMs via MII and "
            "DeepSpeed-Inference",
            {{"step_tokens", Type::integer, "0", 0, 65536, "tokens in a step; 0: the engine's batch tokens"},
             reserve_option("prompt")}},
           make_decode_first},
          {{"policy",
            "stall_free",
            "prompts in chunks sized to bound the time between tokens of decoding streams",
            "Agrawal et al., 2024, Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve",
            {{"tbt_ms", Type::number, "100", 0.01, 1e6, "target time between tokens, milliseconds"},
             {"chunk", Type::integer, "0", 0, 65536, "tokens in a step with decodes; 0: by the cost model from tbt_ms"},
             {"least", Type::integer, "16", 1, 65536, "prompt tokens that run in every step"},
             reserve_option("prompt")}},
           make_stall_free},
          {{"policy",
            "skip_join_mlfq",
            "multi-level feedback queue: long-running streams yield to new ones",
            "Wu et al., 2023, Fast Distributed Inference Serving for Large Language Models",
            {{"quantum_ms", Type::number, "50", 0.001, 1e6, "run time at the first level; doubles with each level"},
             {"levels", Type::integer, "8", 1, 32, "queues"},
             {"starve_ms", Type::number, "60000", 1, 1e9,
              "a stream that has not run for this long returns to the first level"},
             {"headroom", Type::number, "0.05", 0, 1,
              "fraction of the KV blocks kept free by swapping out the last stream in order"},
             reserve_option("prompt")}},
           make_skip_join_mlfq},
          {{"policy",
            "vtc",
            "fair shares of service among tenants by virtual token counters",
            "Sheng et al., 2024, Fairness in Serving Large Language Models",
            {{"prompt_cost", Type::number, "1", 0, 1000, "service of a prompt token"},
             {"answer_cost", Type::number, "2", 0, 1000, "service of an answer token"},
             {"weights", Type::text, "", 0, 0, "TENANT:WEIGHT;TENANT:WEIGHT; default weight 1"},
             reserve_option("prompt")}},
           make_vtc},
          {{"policy",
            "priority",
            "the request's priority, higher first; preempts lower ones",
            "",
            {preempt_option(), reserve_option("prompt")}},
           make_priority},
          {{"policy",
            "deadline",
            "earliest deadline first; rejects deadlines that cannot be met",
            "Liu and Layland, 1973, Scheduling Algorithms for Multiprogramming in a Hard-Real-Time Environment",
            {preempt_option(),
             {"refuse", Type::boolean, "true", 0, 1,
              "reject requests whose deadline cannot be met according to the cost model"},
             reserve_option("prompt")}},
           make_deadline},
          {{"policy",
            "shortest_predicted",
            "shortest predicted answer first, by buckets of lengths",
            "Jin et al., 2023, S3: Increasing GPU Utilization during Generative Inference for Higher Throughput; Hu et "
            "al., 2024, Inference without Interference: Disaggregate LLM Inference for Mixed Downstream Workloads",
            {{"predictor", Type::text, "history", 0, 0, "predictor: oracle, constant:tokens=N, history"},
             {"bucket", Type::integer, "64", 1, 1 << 20, "answer tokens per bucket"},
             {"patience_ms", Type::number, "60000", 1, 1e9, "a stream that has waited this long goes first"}}},
           make_shortest_predicted},
          {{"policy",
            "load_stabilizing",
            "streams start in groups at intervals, so that the sum of the lengths of running streams stays below a "
            "limit",
            "He and Zhai, 2024, FastDecode: High-Throughput GPU-Efficient LLM Serving using Heterogeneous Pipelines",
            {{"load", Type::integer, "0", 0, 1e12,
              "limit of the sum of the lengths of running streams, in tokens; 0: half of the KV cache"},
             {"interval", Type::integer, "0", 0, 1 << 20,
              "steps between groups of streams that start; 0: a 32nd of an answer"},
             {"predictor", Type::text, "", 0, 0,
              "of the length of answers: oracle, constant:tokens=N, history; empty: max_tokens"}}},
           make_load_stabilizing},
          {{"policy",
            "orca",
            "iteration-level, whole prompts, KV reserved at admission in one piece: the baseline of the vLLM paper",
            "Yu et al., 2022, Orca: A Distributed Serving System for Transformer-Based Generative Models; Kwon et al., "
            "2023, Efficient Memory Management for Large Language Model Serving with PagedAttention",
            {{"room", Type::text, "max", 0, 0,
              "answer tokens reserved: max, pow2 (above the true length) or oracle (the true length)"}}},
           make_orca},
      });
  return registry;
}

const Registry<PredictorFactory>& predictors() {
  static const Registry<PredictorFactory> registry(
      {.loss = Loss::lossless, .test = "src/schedule/predictors_test.cc"},
      {
          {{"predictor", "oracle", "the true length of the answer, where the trace has it", "", {}}, make_oracle},
          {{"predictor",
            "constant",
            "the same length for every answer",
            "",
            {{"tokens", Type::number, "128", 1, 1e9, "tokens"}}},
           make_constant},
          {{"predictor",
            "history",
            "decaying mean over the tenant's answers to prompts of similar size",
            "",
            {{"decay", Type::number, "0.02", 0.0001, 1, "weight of the newest answer"}}},
           make_history},
      });
  return registry;
}

}  // namespace millrace
