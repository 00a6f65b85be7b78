// The public headers of the client, as a C++ program sees them.
#include <fencelock/client.h>
#include <fencelock/store_client.h>
#include <fencelock/types.h>

#include <cstring>

int main()
{
    fl_client *client = nullptr;
    fl_client_options options = {};
    options.timeout_ms = 100;
    if (fl_open("127.0.0.1:1", &options, &client) != 0) {
        return 1;
    }
    bool good = fl_client_owner(client).len == 32 && fl_str("abc").len == 3 &&
                fl_client_nodes(client) == 1 && fl_err_class(FL_ETIMEOUT) == FL_CLASS_UNKNOWN &&
                std::strcmp(fl_version(), FENCELOCK_VERSION) == 0;
    fl_close(client);
    fl_store_close(nullptr);
    fl_lock_free(nullptr);
    fl_close(nullptr);
    return good ? 0 : 1;
}
