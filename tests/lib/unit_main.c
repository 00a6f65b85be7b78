/* unit_main.c: main() of the unit tests that have none of their own. */
#include "unit.h"

int main(int argc, char **argv)
{
    return unit_run(argc, argv, NULL, NULL);
}
