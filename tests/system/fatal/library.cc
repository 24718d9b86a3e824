// A oneDNN whose primitives bring their process down, to be loaded before the real one.
#include <cstdlib>

extern "C" int dnnl_primitive_execute() { std::abort(); }
