// The files and batches visible to a request: a key sees its own, an admin key sees all.
#pragma once

#include "server/api/endpoint.h"
#include "server/batch/file_store.h"

namespace millrace {

FileUser user_of(const Call& call);

}  // namespace millrace
