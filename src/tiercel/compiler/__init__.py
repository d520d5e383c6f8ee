"""Generic bytecode to the loop form: typing, region graph, fusion, memory plan, lowering; one pure function a stage."""
