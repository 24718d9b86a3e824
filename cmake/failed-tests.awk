# Of ctest's LastTest.log: what failing tests printed, without the lines of those of their cases that passed; at most 40 lines a test.
/^[0-9]+\/[0-9]+ Testing: / { name = $3; count = 0 }
/^<end of output>/ { inside = 0 }
inside && !/^\[( RUN      |       OK |----------|==========)\]/ && !/^[[:space:]]*$/ { kept[count++] = $0 }
/^Output:/ { inside = 1; getline }
/^Test .*\./ && !/^Test (Passed|Skipped)\./ && !/^Test time/ {
  print "\n== " name
  for (i = 0; i < count && i < 40; ++i) print kept[i]
  if (count > 40) print "... and " count - 40 " lines more"
}
