#include "run/compatibility/rules.h"

#include <fmt/format.h>

namespace millrace {
namespace {

using namespace facts;

constexpr const char* kOmitOne = "omit one of the two";
constexpr const char* kUseRows = "use f16 or another format of rows";
constexpr const char* kUseChains = "use a drafter of chains, such as ngram without branches, or none";
constexpr const char* kUseNgram = "use ngram, or no drafter";
constexpr const char* kNotShared =
    "its budgets differ by layer, so that every layer has blocks of its own, and blocks of all layers are needed";
constexpr const char* kCopiedBlocks =
    "it has budgets by layer or head, with blocks for each, and documents are copied in blocks of all layers";
constexpr const char* kStoresNothing = "it stores no keys and values: a text runs whole, in one step";
constexpr const char* kReadTwice =
    "some layers of the model read the keys of other layers, and it counts only the queries of the layers that store "
    "them";
constexpr const char* kOwnWindows =
    "layers of this model see a window, and need blocks of their own where an evictor drops tokens";
constexpr const char* kWindowsApart = "layers with a window have blocks of their own where an evictor drops tokens";

constexpr Rule kRules[] = {
    // What an executor does not compute.
    {&kDrafts, &kSimulates, "simulated tokens are random, so that no draft would ever be right", "omit the drafter"},
    {&kDraftModel, &kNoSecondModel, "it runs no second model", "use ngram or lookahead"},
    {&kBeams, &kSimulates, "simulated tokens have no log-probabilities", "use one beam"},
    {&kReader, &kSimulates, "it computes nothing that could be read", "omit the reader"},
    {&kConstraint, &kSimulates, "it writes no text", "omit the constraint"},
    {&kStoreElsewhere, &kSimulates, "it has the store ssd only, whose size is in tokens", "choose that store"},
    {&kFetchesPart, &kSimulates, "it fetches all of a prompt's blocks", "fetch all of them"},
    {&kStore, &kSimulatedStates, "a simulated store holds no copies of states", kOmitOne},
    {&kPattern, &kSimulatedWindows, "patterns are simulated without windows", kOmitOne},
    {&kDocumentsApart, &kSimulatedRows, "patterns that store rows are simulated without documents",
     "use a static pattern"},
    {&kHidesKeys, &kNoGates, "it computes no layers whose gates could choose", "choose another evictor"},
    {&kObservesMass, &kNoMass, "it computes no attention that could be observed", "choose another evictor"},
    {&kDocumentsApart, &kNoKeys, "it computes no keys that could move", "send the documents without a context"},

    // Weights on the disk.
    {&kDocumentsApart, &kReadsWeights, "keys of documents outlive a pass in which a read may fail",
     "use weights=mapped or weights=resident, or send the documents without a context"},
    {&kInt8Copies, &kReadsWeights, "it copies every matrix at the start, and weights on the disk do not stay in memory",
     "use weights=resident"},

    // Keys on the disk.
    {&kStreamsKeys, &kSimulates, "it has no keys and values that could be in a file", "omit the tier"},
    {&kStreamsKeys, &kWholeTexts, kStoresNothing, "omit the tier"},
    {&kStreamsKeys, &kEvicts, "it drops keys and values in all layers between steps, and layers have them in turn",
     kOmitOne},
    {&kStreamsKeys, &kEncodes, "blocks change when newer tokens are encoded, and are saved when tokens are stored",
     kUseRows},
    {&kStreamsKeys, &kResiduals, "records in its file have no residuals", "use q8_0 or another format of one part"},
    {&kStreamsKeys, &kVirtualPool, "a stream's blocks have memory one by one", "choose paged"},
    {&kStreamsKeys, &kStore, "it copies blocks of all layers between steps, and layers have them in turn", kOmitOne},
    {&kStreamsKeys, &kPrefixFile, "it copies blocks of all layers between steps, and layers have them in turn",
     kOmitOne},
    {&kStreamsKeys, &kContext, "documents move keys of all layers between steps, and layers have them in turn",
     kOmitOne},
    {&kStreamsKeys, &kDocumentsApart, "documents move keys of all layers between steps, and layers have them in turn",
     kOmitOne},
    {&kStreamsKeys, &kDraftModel, "its keys are in the same blocks, and it runs passes of its own", kUseNgram},
    {&kStreamsKeys, &kSkipsLayers, "drafts skip layers, and layers have keys in turn", kUseNgram},
    {&kStreamsKeys, &kReadsHiddenStates, "its keys are in the same blocks, and it runs passes of its own", kUseNgram},
    {&kStreamsKeys, &kDrafterLayers, "its keys are in the same blocks, and it runs passes of its own", kUseNgram},
    {&kStreamsKeys, &kDraftsTrees, "tokens of a tree that are kept move to other slots between steps", kUseChains},
    {&kStreamsKeys, &kExits, "tokens skip layers, whose keys are then stored without the pass", kOmitOne},
    {&kStreamsKeys, &kWorkers, "worker processes hold its keys and values", kOmitOne},
    {&kStreamsKeys, &kHops, "values of hops are stored next to the keys of each layer", "use another pattern"},

    // Drafters.
    {&kSkipsLayers, &kSharedKeys, "some of its layers read the keys of others, which a draft may skip", "use ngram"},
    {&kSkipsLayers, &kStreams, "it has several residual streams, of which drafts keep one", "use ngram"},
    {&kReadsHiddenStates, &kSharedKeys, "its last layers run for tokens with logits alone", "use ngram"},
    {&kDraftModel, &kEncodes, "it encodes whole blocks of one model", kUseRows},
    {&kDraftHeads, &kRowBlocks, "the head size of the drafter's model is no multiple of its blocks", "use f16 or bf16"},
    {&kSkipsLayers, &kEncodes, "it encodes whole blocks, in which a draft's keys cannot be replaced", kUseRows},
    {&kDraftsTrees, &kEncodes, "it encodes whole blocks, in which tokens of a tree cannot move",
     "use a drafter of chains, such as ngram without branches, or f16 or another format of rows"},
    {&kDraftsTrees, &kPattern, "a pattern has no rule for the branches of a tree", kUseChains},
    {&kHiddenRows, &kTwoFormats, "hidden states are rows of one format", "use one format for keys and values"},
    {&kHiddenRows, &kResiduals, "hidden states are stored without residuals", "use q8_0 or another format of one part"},
    {&kDrafterLayers, &kPatternRows, "both store layers of their own behind those of the model",
     "use a drafter without, such as ngram, or none"},

    // Encoders.
    {&kDrafts, &kWholeTexts, "it predicts no tokens that could be drafted", "omit the drafter"},
    {&kEvicts, &kWholeTexts, kStoresNothing, "omit the evictor"},
    {&kExits, &kWholeTexts, "its result is the hidden states behind its last layer", "omit the exit"},
    {&kInt8Copies, &kWholeTexts, "it samples no tokens to calibrate itself", "omit the switch"},
    {&kPattern, &kWholeTexts, "its tokens see all tokens of their text, before and behind them", "omit the pattern"},
    {&kEncodes, &kWholeTexts, kStoresNothing, "use f16"},
    {&kRowBlocks, &kWholeTexts, kStoresNothing, "use f16"},
    {&kResiduals, &kWholeTexts, kStoresNothing, "use f16"},
    {&kTwoFormats, &kWholeTexts, kStoresNothing, "use f16"},
    {&kTier, &kWholeTexts, kStoresNothing, "omit the tier"},
    {&kStore, &kWholeTexts, kStoresNothing, "omit the store"},
    {&kPrefixFile, &kWholeTexts, kStoresNothing, "omit the file"},
    {&kContext, &kWholeTexts, kStoresNothing, "omit the context"},

    // Evictors.
    {&kHidesKeys, &kPattern, "gates hide single keys, and a pattern sees whole blocks of keys", kOmitOne},
    {&kHeadBudgets, &kPattern, "budgets differ by head, and a pattern's heads see blocks of one table", kOmitOne},
    {&kLayerTables, &kPatternRows,
     "budgets differ by layer, and a pattern that stores rows next to the keys needs one table",
     "use a static pattern, or an evictor with one budget"},
    {&kLayerBudgets, &kPatternRows,
     "budgets differ by layer, and a pattern that stores rows next to the keys needs one table",
     "use a static pattern, or an evictor with one budget"},
    {&kEvicts, &kRecurrent, "it has recurrent layers, whose state still holds dropped tokens", "omit the evictor"},
    {&kPairGates, &kNoPairGates,
     "it has no gates between tokens (attn_int_q, attn_int_k and attn_int of each layer), which must be trained with "
     "it",
     "choose another evictor"},
    {&kSelectionGates, &kNoSelectionGates,
     "it has no gates that select tokens (attn_select of each layer), which must be trained with it",
     "choose another evictor"},
    {&kObservesMass, &kSharedKeys, kReadTwice, "use streamingllm or window"},
    {&kHidesKeys, &kSharedKeys, "some of its layers read the keys of others, and gates choose in each layer",
     "use streamingllm or window"},
    {&kEvicts, &kReadsHiddenStates, "it needs the hidden states of all tokens", "use ngram, or a draft model"},
    {&kEvicts, &kOnlyWindows, "each of its layers sees a window, behind which keys and values are dropped anyway",
     "omit the evictor"},
    {&kEvicts, &kDraftWindows, "its model has layers that see a window", "use ngram, or another draft model"},
    {&kMovesKeys, &kDraftModel, "positions=cache moves tokens, and drafts of a model are of positions in the text",
     "use ngram, or positions=text"},
    {&kMovesKeys, &kSkipsLayers, "positions=cache moves tokens, and drafts of a model are of positions in the text",
     "use ngram, or positions=text"},
    {&kHidesKeys, &kSkipsLayers, "gates choose in whole passes, and its drafts skip layers", kUseNgram},
    {&kEvicts, &kDraftsTrees, "tokens of a tree that are kept move to other slots", kUseChains},
    {&kLayerBudgets, &kSharedTables, "budgets that differ by layer need blocks of their own for layers",
     "start the engine with this evictor, or another of its kind (--evictor)"},
    {&kHeadBudgets, &kSharedHeads, "budgets that differ by KV head need blocks of their own for heads",
     "start the engine with this evictor, or another of its kind (--evictor)"},
    {&kLayerBudgets, &kHeadTables, "budgets differ by layer, and every KV head has blocks of its own in it",
     "start another engine with this evictor, or choose one with budgets by head"},
    {&kHidesKeys, &kEncodesMost,
     "it encodes whole blocks, of which no kernel leaves out the single keys that gates hide", kUseRows},
    {&kEvicts, &kEncodesUnrotated,
     "it rounds keys as they were before RoPE at the positions of their slots, which tokens that move no longer have",
     "use another codec, such as kivi or quarot_kv"},
    {&kMovesKeys, &kEncodesMost, "positions=cache moves keys, which would be rounded again each time",
     "use positions=text, or f16 or another format of rows"},
    {&kLayerTables, &kEncodes,
     "budgets differ by layer, and a stream's newest tokens, which are not encoded yet, are the same in every layer",
     kUseRows},
    {&kLayerTables, &kWindows, "its layers with a window drop keys by themselves, and budgets differ by layer",
     "use an evictor with one budget"},
    {&kLayerTables, &kUnequalHeads, "budgets differ by layer, and a block must fit each of its layers",
     "use an evictor with one budget"},
    {&kLayerTables, &kVirtualPool, "budgets differ by layer, and layers have no contiguous blocks", "choose paged"},
    {&kEvicts, &kWindowsTogether, kOwnWindows,
     "start the engine with an evictor (--evictor), then requests may choose another"},
    {&kMovesKeys, &kLayerTables, "positions=cache needs the same tokens in all layers, which have blocks of their own",
     "use positions=text"},
    {&kMovesKeys, &kWindows, "positions=cache needs the same tokens in all layers, and those with a window keep others",
     "use positions=text"},
    {&kMovesKeys, &kLearnedPositions,
     "positions=cache moves keys, and the model adds learned positions to its tokens, so that they cannot be moved",
     "use positions=text"},
    {&kLayerTables, &kDrafterLayers, "budgets differ by layer, and a drafter's keys have none", "use ngram, or none"},
    {&kLayerTables, &kTier, kNotShared, kOmitOne},
    {&kLayerTables, &kStore, kNotShared, kOmitOne},
    {&kLayerTables, &kPrefixFile, kNotShared, kOmitOne},
    {&kLayerTables, &kContext, kNotShared, kOmitOne},

    // Early exit.
    {&kExits, &kSkipsLayers, "drafts skip layers of the whole model", kUseNgram},
    {&kExits, &kReadsHiddenStates, "it needs the hidden states of the model's last layers", kUseNgram},
    {&kExits, &kObservesMass, "its sums are of every layer, and tokens skip some", "use streamingllm or window"},
    {&kExits, &kHidesKeys, "its gates are in every layer, and tokens skip some", "use streamingllm or window"},
    {&kExits, &kLayerTables, "every layer has blocks of its own, and tokens skip some", kOmitOne},
    {&kExits, &kSharedKeys, "its last layers store no keys, and run for tokens with logits alone", kOmitOne},
    {&kExits, &kLayerInputs, "each of its layers has its own input of a token, and tokens leave between layers",
     kOmitOne},
    {&kExits, &kStreams, "it has several residual streams, which are merged behind its last layer", kOmitOne},
    {&kExits, &kEncodes, "it encodes whole blocks of every layer, and tokens skip some", kUseRows},
    {&kExits, &kBlockImportance, "the importance of blocks is observed in a layer that tokens may skip",
     "use another prefix evictor, and order arrival in the KV store"},
    {&kExits, &kDocumentsApart, "documents are computed in every layer, and tokens skip some", kOmitOne},
    {&kExits, &kDocumentsEncoded, "documents are read in every layer, and tokens skip some", kOmitOne},
    {&kExits, &kPrefixFile, "a file has the keys and values of every layer, and tokens skip some", kOmitOne},

    // KV formats.
    {&kEncodes, &kRecurrent, "it has recurrent layers, whose states are not encoded", "use f16"},
    {&kEncodes, &kSharedKeys, "some of its layers read the keys of others, whose newest rows are not encoded yet",
     kUseRows},
    {&kEncodesMost, &kLatent, "it has latent attention, whose values are parts of its keys", "use f16"},
    {&kResiduals, &kLatent, "it has latent attention, whose values are parts of its keys", "use q8_0"},
    {&kTwoFormats, &kLatent,
     "it has latent attention, whose values are parts of its keys, so that they have one format", "use one format"},
    {&kWindowFormats, &kNoWindowTables, "no layers have blocks of their own for a window",
     "omit window=, or give the model a context that is longer than its layers' window and a step together"},
    {&kEncodes, &kVirtualPool, "its blocks are not whole pages", "choose paged"},
    {&kResiduals, &kUnifiedMax, "it finds no largest weight, by which queries read both parts", "omit the kernel"},

    // Attention patterns.
    {&kPattern, &kRecurrent, "it has recurrent layers, which see no single tokens", "omit the pattern"},
    {&kPatternRows, &kSharedKeys,
     "some of its layers read the keys of others, and it stores rows next to the keys of every layer",
     "use a static pattern"},
    {&kFindsLines, &kSharedKeys, "some of its layers read the keys of others, and lines are found for each layer",
     "use a static pattern"},
    {&kPattern, &kOnlyWindows, "each of its layers sees a window, which it keeps", "omit the pattern"},
    {&kPattern, &kWidePages, "its blocks of whole pages are larger than the pattern's, or no parts of them",
     "choose paged, or a larger block="},
    {&kHops, &kEncodesMost,
     "it encodes whole blocks, and values of hops are rows, which no kernel reads together with encoded keys",
     kUseRows},
    {&kHops, &kResiduals, "values of hops are stored without residuals", "use q8_0, or another pattern"},
    {&kHops, &kLatent, "it has latent attention, whose values are parts of its keys, which cannot diffuse",
     "use hops=1"},
    {&kHops, &kSinks, "its heads give weight to a sink, which has no value that could diffuse", "use hops=1"},
    {&kPatternRows, &kTwoFormats, "rows next to the keys need keys and values of one format", "use one format"},

    // Prefixes.
    {&kStore, &kRawTail, "blocks without the raw rows of their newest tokens cannot be shared", "use residual=0"},
    {&kStore, &kEvictedWindows, kWindowsApart, kOmitOne},
    {&kFetchesPart, &kPattern, "blocks that are left out would shift those that it sees",
     "fetch all of a prompt's blocks"},
    {&kFetchesPart, &kRecurrent, "it has recurrent layers, whose states are of all of a prompt's tokens",
     "fetch all of a prompt's blocks"},
    {&kFetchesPart, &kWindows, "blocks that are left out would shift its windows", "fetch all of a prompt's blocks"},
    {&kFetchesPart, &kDraftWindows, "blocks that are left out would shift its windows",
     "fetch all of a prompt's blocks"},
    {&kBlockImportance, &kSharedKeys, kReadTwice, "use another prefix evictor, and order arrival in the KV store"},
    {&kBlockImportance, &kEncodes, "the importance of encoded blocks is not observed",
     "use another prefix evictor, and order arrival in the KV store"},
    {&kPrefixFile, &kEvictedWindows, kWindowsApart, "start the engine without an evictor"},
    {&kPrefixFile, &kWindowTables, "its layers with a window keep only the newest blocks",
     "keep all of them (--keep-window-keys)"},

    // Documents.
    {&kEncoder, &kEncodes, "it encodes whole blocks of streams", kUseRows},
    {&kEncoder, &kResiduals, "documents that an encoder reads have no residuals",
     "use q8_0 or another format of one part"},
    {&kDocumentsEncoded, &kDraftModel, "it does not see the documents", kUseNgram},
    {&kDocumentsEncoded, &kSkipsLayers, "it does not see the documents", kUseNgram},
    {&kDocumentsEncoded, &kRowsForTokens, "an encoder reads tokens", "send tokens"},
    {&kDocumentsEncoded, &kReader, "prompts with documents that an encoder reads are not read", kOmitOne},
    {&kDocumentsEncoded, &kBeams, "beams do not share encoded documents", "use n instead"},
    {&kDocumentsApart, &kRowsForTokens, "prompts with rows in place of tokens have no parts", "send tokens"},
    {&kDocumentsApart, &kLayerBudgets, kCopiedBlocks, "use an evictor with one budget, such as snapkv"},
    {&kDocumentsApart, &kHeadBudgets, kCopiedBlocks, "use an evictor with one budget, such as snapkv"},
    {&kDocumentsApart, &kPromptRows,
     "it stores rows of its own next to the keys, which do not move to where a document stands",
     "use a static pattern, or a dynamic one with phase=decode"},
    {&kDocumentsApart, &kFindsLines, "lines are found by queries of a prompt in order", "use heads=b or a"},
    {&kDocumentsApart, &kSumsAttention, "blocks are found by queries of a prompt in order", "use another pattern"},
    {&kWeighsDocuments, &kPatternRows, "answers weigh the documents' keys again, and would see all of them",
     "use a static pattern, or another context"},
    {&kDocumentsApart, &kDraftModel, "it sees the prompt in order and has no keys that move", kUseNgram},
    {&kDocumentsApart, &kLayerTables, kNotShared, kOmitOne},
    {&kDocumentsApart, &kEvictedWindows, kWindowsApart, "start the engine without an evictor"},
    {&kDocumentsApart, &kDroppedWindows, "its layers with a window keep only the newest keys",
     "keep all of them (--keep-window-keys), or choose the context for the whole engine"},
    {&kDocumentsApart, &kRecurrent, "it has recurrent layers, whose state is of every token before it",
     "send the documents without a context"},
    {&kDocumentsApart, &kLearnedPositions,
     "it adds learned positions to its tokens, so that their keys cannot be moved",
     "send the documents without a context"},
    {&kDocumentsApart, &kStreams, "it has several residual streams, of which documents keep one",
     "send the documents without a context"},
    {&kDocumentsApart, &kEncodesBesideRows, "documents are kept as rows, without those of the pattern",
     "use a static pattern, or f16 or another format of rows"},
    {&kDocumentsApart, &kNoDocumentRows, "it encodes whole blocks, and documents are kept as rows next to them",
     "start the engine with a context (--use context=NAME), which takes memory for them, or use f16 or another format "
     "of rows"},
    {&kRefreshesShare, &kEncodes,
     "it computes tokens in the middle of a document again, whose rows are encoded with others",
     "use epic, or a format of rows such as q8_0"},
    {&kSeesBetween, &kEncodes, "with whole blocks a document sees the prompt's first tokens and itself",
     "choose another context, or a format of rows"},
    {&kSharedPositions, &kMovesKeys, "documents share positions, and positions=cache makes positions of slots",
     "use positions=text, or a context that moves keys, such as kvlink"},

    // Requests.
    {&kRowsForTokens, &kLayerInputs, "its layers find their inputs by the token, and rows have none", "send tokens"},
    {&kReader, &kRowsForTokens, "prompts with rows in place of tokens are not read", "send tokens"},
    {&kReadsDocuments, &kDocumentsApart, "documents that it computes separately are not read",
     "read positions behind the last document"},
    {&kReader, &kSeveralAnswers, "a prompt that is read is computed once", "ask for one answer"},
    {&kStopStrings, &kNoTokenizer, "it has no tokenizer, so that there is no text to match", "use stop tokens"},
    {&kConstraint, &kNoTokenizer, "it has no tokenizer, so that there is no text to hold to it", "omit the constraint"},
    {&kBeams, &kConstraint, "beams are ranked by the model's own distribution", "use n instead"},
    {&kBeams, &kThinkingBudget, "beams are ranked by the model's own distribution", "use n instead"},
    {&kBeams, &kStopStrings, "beams end at tokens", "use n instead, or stop tokens"},
    {&kBeams, &kChangedLogits, "beams are ranked by the model's own distribution", "use n instead"},
    {&kBeams, &kLayerTables, kNotShared, kOmitOne},
    {&kBeams, &kDocumentsApart, "beams share a prompt's blocks", "use n instead"},
    {&kBeams, &kEvicts, "beams share keys and values, which an evictor cannot drop", kOmitOne},

    // Keys and values in worker processes.
    {&kWorkers, &kSimulates, "it computes nothing that workers could attend", "choose a cost with workers instead"},
    {&kWorkers, &kDraftModel, "workers hold the layers of one model", kUseNgram},
    {&kWorkers, &kSkipsLayers, "its drafts skip layers, whose keys the engine would copy", kUseNgram},
    {&kWorkers, &kDrafterLayers, "workers hold the layers of the model alone", kUseNgram},
    {&kWorkers, &kDraftsTrees, "workers have no rule for the branches of a tree", kUseChains},
    {&kWorkers, &kWholeTexts, kStoresNothing, "omit the kernel"},
    {&kWorkers, &kEvicts, "the engine has no keys and values that it could move", kOmitOne},
    {&kWorkers, &kExits, "keys of skipped layers are stored in place", kOmitOne},
    {&kWorkers, &kEncodes, "workers hold rows, and it encodes whole blocks", kUseRows},
    {&kWorkers, &kResiduals, "workers hold rows without residuals", "use q8_0 or another format of one part"},
    {&kWorkers, &kLatent, "it has latent attention, whose values are parts of its keys", "omit the kernel"},
    {&kWorkers, &kPattern, "workers attend every key", kOmitOne},
    {&kWorkers, &kVirtualPool, "workers hold blocks by number", "choose paged"},
    {&kWorkers, &kTier, "the engine has no keys and values that it could move", "omit the tier"},
    {&kWorkers, &kStore, "the engine has no keys and values that it could store", "omit the store"},
    {&kWorkers, &kPrefixFile, "the engine has no keys and values that it could save", kOmitOne},
    {&kWorkers, &kBlockImportance, "the importance of blocks is observed in place", "use another prefix evictor"},
    {&kWorkers, &kDocumentsApart, "the engine has no keys and values that it could move", kOmitOne},
    {&kWorkers, &kEncoder, "the engine has no keys and values that documents could join", kOmitOne},
    {&kWorkers, &kSeveralAnswers, "answers would share a block that is partly filled, which the engine cannot copy",
     "send a request for each answer"},
    {&kTwoBatches, &kReadsWeights, "a pass reads each layer once, in order", "use batches=1"},
};

}  // namespace

std::span<const Rule> compatibility_rules() { return kRules; }

Result<void> resolve(const Facts& facts) {
  for (const Rule& rule : kRules) {
    const std::string *a = facts.who(*rule.a), *b = facts.who(*rule.b);
    if (a && b) return Error::unsupported(fmt::format("{} does not go with {}: {}; {}", *a, *b, rule.why, rule.advice));
  }
  return {};
}

}  // namespace millrace
