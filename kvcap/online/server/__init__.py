"""The service: an estimator behind HTTP, beside an engine that never waits for it.

One thread owns the estimator. Requests queue in the order in which they arrived, whatever their tokenizing
takes; the thread takes all that are ready at the head of the queue at once.

============================ =======================================================================
``options``, ``settings``    what the service is told: flags, environment, TOML or JSON
``bodies``                   request bodies of ``/v1/requests`` into batches
``shadow``, ``prompts``      the OpenAI API: bodies into token ids, empty completions out
``service``                  the queue, the estimator's thread, finalizing
``recorder``, ``checkpoint`` the request log, and the estimator's state
``results``                  what finalizing leaves: a replay of the log
``metrics``                  Prometheus
``app``, ``run``             HTTP, and the process
============================ =======================================================================
"""
