// The built-in routers, one line each. The first one is that of the models.
#include "models/routers/builtin.h"

namespace millrace {

const Registry<const Router*>& routers() {
  static const Registry<const Router*> registry("router", {.test = "src/models/routers_test.cc"},
                                                {&kTopkRouter, &kSwitchRouter});
  return registry;
}

}  // namespace millrace
