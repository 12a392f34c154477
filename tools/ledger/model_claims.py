"""The claims of papers that tools/three_models checks on three models: which passes run on each side."""

PLAIN4, PLAIN3 = "rtn:fit=plain,format=q4_0", "rtn:fit=plain,format=q3_g64"
W4A4 = "round_inputs:format=q4_0,inputs=int4"
ROW4 = "zeroquant:format=q4_0,group=0,inputs=none"
# One scale a row in 3 bits, as the papers of SqueezeLLM and LUT-GEMM have it.
ROW3 = "squeezellm:table=even,bits=3"


def _claim(name, says, beside, baseline, member, direction="better", why=""):
    return {"name": name, "says": says, "beside": beside, "baseline": baseline.split(" + "),
            "member": member.split(" + "), "direction": direction, "why": why}


WHY_BLOCKS = ("Blocks of 32 columns store their scale in any case, so larger groups save no bytes, and q4_0 has the smallest "
              "groups that its bytes allow. The papers compare with one scale for a row or a matrix.")

# `why`: why a claim fails, where it does; the page prints it only then.
CLAIMS = (
    _claim("gptq, 4 bits", "better than plain rounding", "plain q4_0", PLAIN4, "gptq:format=q4_0"),
    _claim("gptq, 3 bits", "better than plain rounding", "plain q3_g64", PLAIN3, "gptq:format=q3_g64"),
    _claim("awq, 4 bits", "better than plain rounding", "plain q4_0", PLAIN4, "awq:format=q4_0"),
    _claim("awq, 3 bits", "better than plain rounding", "plain q3_g64", PLAIN3, "awq:format=q3_g64"),
    _claim("rotate, 4 bits", "better than plain rounding", "plain q4_0", PLAIN4, "rotate:format=q4_0",
           why="q4_0 has a scale for every 32 columns, so an outlier costs its own block only; the rotation spreads it over 64 "
               "columns. The paper has one scale for a row, and rounds inputs too, whose outliers are the reason to rotate."),
    _claim("rotate and gptq, 3 bits", "better than gptq alone", "gptq q3_g64", "gptq:format=q3_g64",
           "rotate:format= + gptq:format=q3_g64"),
    _claim("squeezellm, 4 bits", "better than plain rounding with a scale a row", "even tables",
           "squeezellm:table=even,bits=4", "squeezellm:bits=4"),
    _claim("squeezellm, 3 bits", "better than plain rounding with a scale a row", "even tables", ROW3,
           "squeezellm:bits=3"),
    _claim("squeezellm, 3 bits, beside gptq", "better than gptq", "gptq q3_g64", "gptq:format=q3_g64",
           "squeezellm:bits=3",
           why="A row has one table for its 128 to 704 weights here, where q3_g64 has a scale and a minimum for every 64 at "
               "nearly the same bits; and GPTQ moves later columns to make up for errors, which k-means does not. A weight's "
               "cost is that of its input, where the paper has gradients of the loss."),
    _claim("lut_gemm, 4 bits", "as good as other 4-bit formats", "plain q4_0", PLAIN4, "lut_gemm:bits=4", "equal",
           why="A row has one set of scales for its 128 to 704 weights, where q4_0 has a scale for every 32."),
    _claim("lut_gemm, 3 bits", "better than plain rounding with a scale a row", "even tables", ROW3,
           "lut_gemm:bits=3"),
    _claim("finequant", "better than one scale a row", "a scale a row", "finequant:alpha=1", "finequant"),
    _claim("finequant, beside q4_0", "better at the same bytes", "plain q4_0", PLAIN4, "finequant", why=WHY_BLOCKS),
    _claim("zeroquant", "better than one scale a row", "a scale a row", ROW4,
           "zeroquant:format=q4_0,inputs=none"),
    _claim("zeroquant, beside q4_0", "better at the same bytes", "plain q4_0", PLAIN4,
           "zeroquant:format=q4_0,inputs=none", why=WHY_BLOCKS),
    _claim("olive", "better than one scale a row", "a scale a row", ROW4, "olive",
           why="Rows of small models have no weights far beyond the others, for which a neighbour would have to pay: a pair "
               "of 4-bit weights is then what plain rounding has, with 15 levels in place of 16."),
    _claim("llm_fp4", "better than plain FP4", "plain FP4", "round_inputs:format=mxfp4,inputs=e2m1", "llm_fp4"),
    _claim("outlier_suppression_plus", "better than plain W4A4", "plain W4A4", W4A4,
           "outlier_suppression_plus:format=q4_0,inputs=int4"),
    _claim("qllm", "better than plain W4A4", "plain W4A4", W4A4, "qllm"),
    _claim("owl, 70 %", "better than wanda", "wanda", "wanda:sparsity=0.7", "owl:sparsity=0.7",
           why="It fails on the smallest model only, where a layer may lose 78 % of its weights; the reason was not measured."),
    _claim("pruner_zero, 50 %", "better than wanda", "wanda", "wanda:sparsity=0.5", "pruner_zero:sparsity=0.5",
           why="The published formula has the gradient of the loss. There is no backward pass here, and the size of the input "
               "stands in for it, so a weight's square counts beside the first power of its input, which is further from the "
               "output error than Wanda's product."),
    _claim("asvd", "better than svd", "svd", "svd:ratio=0.8,format=f16", "asvd:ratio=0.8,format=f16"),
    _claim("svd_llm", "better than svd", "svd", "svd:ratio=0.8,format=f16", "svd_llm:ratio=0.8,format=f16"),
    _claim("losparse", "better than svd", "svd", "svd:ratio=0.8,format=f16",
           "losparse:ratio=0.6,format=f16,columns=0.05",
           why="At the same bytes the sparse columns cost a quarter of the pair's rank. The paper trains both parts; without "
               "training they bring less than that rank, but on stories3M. With the full rank, ratio=0.8, and 20 % more "
               "bytes it is better than svd on all three models."),
    _claim("dsformer", "better than svd", "svd", "svd:ratio=0.8", "dsformer:atoms=0.625,nonzeros=7",
           why="The factors are fitted to the matrix, where the paper learns them on the task. On lab-mha it leaves the small "
               "matrices as they are, because the factors would not be smaller, so its file is larger."),
    _claim("lplr", "as good as svd in the same format", "svd", "svd:ratio=1,format=q4_0",
           "lplr:ratio=1,format=q4_0,power=2", "equal",
           why="The left factor comes from a random sketch, whose error is that of the truncation up to a factor; singular "
               "values of matrices this small fall slowly, which makes the factor large."),
)
