# cmake -DOUT=file.cc -DABI=abi.h -DGPU=gpu.h -P embed.cmake: writes the definitions that kernels/jit/embedded.h declares.
function(literal name path)
  file(READ ${path} text)
  # A literal may be too long for a compiler; neighbours are one.
  string(LENGTH "${text}" length)
  set(pieces "")
  foreach(begin RANGE 0 ${length} 8000)
    string(SUBSTRING "${text}" ${begin} 8000 piece)
    string(APPEND pieces "R\"opwire(${piece})opwire\"\n")
  endforeach()
  file(APPEND ${OUT} "const std::string_view ${name} =\n${pieces};\n")
endfunction()

file(WRITE ${OUT} "// Generated.\n#include \"kernels/jit/embedded.h\"\n\nnamespace opwire::jit {\n")
literal(kAbiHeader ${ABI})
literal(kGpuHeader ${GPU})
file(APPEND ${OUT} "}  // namespace opwire::jit\n")
